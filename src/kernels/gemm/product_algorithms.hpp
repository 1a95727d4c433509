#pragma once
/// Algorithms of matrix products that were the fastest of cuBLASLt's candidates, in a text file
/// that later runs read: a line per machine and problem, with tabs between the two and the
/// algorithm.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::kernels::detail {

/// A cublasLtMatmulAlgo_t, which may be stored for the same version of the library (cublasLt.h).
using AlgorithmWords = std::array<std::uint64_t, 8>;

class ProductAlgorithms {
 public:
  /// Reads @p file; one that does not exist is empty.
  /// @param machine what algorithms depend on: device, driver, library. Lines of others are
  /// skipped, as are damaged ones.
  ProductAlgorithms(std::string file, std::string machine);

  std::optional<AlgorithmWords> find(std::span<std::int64_t const> problem) const;
  /// Appends a line by one write, so that the lines of several ranks do not mix; of lines for the
  /// same problem the first one counts in later runs. A warning says when the file cannot be
  /// written.
  void add(std::span<std::int64_t const> problem, AlgorithmWords const& algorithm);

 private:
  std::string file_, machine_;
  std::map<std::vector<std::int64_t>, AlgorithmWords> known_;
};

/// The number of the fastest candidate: the first one whose time is within 2 % of the shortest,
/// because the library names first what it expects to be faster. @pre there are some
std::size_t fastest_of(std::vector<double> const& seconds);

}  // namespace tessera::kernels::detail

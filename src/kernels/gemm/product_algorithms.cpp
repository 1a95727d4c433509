#include "gemm/product_algorithms.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <ios>
#include <sstream>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"

namespace tessera::kernels::detail {
namespace {

std::optional<AlgorithmWords> algorithm_of(std::string const& text) {
  std::istringstream in(text);
  in >> std::hex;
  AlgorithmWords words{};
  for (auto& word : words)
    if (!(in >> word)) return std::nullopt;
  std::string rest;
  return in >> rest ? std::nullopt : std::optional(words);
}

std::vector<std::int64_t> problem_of(std::string const& text) {
  std::istringstream in(text);
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = 0; in >> number;) numbers.push_back(number);
  return in.eof() ? numbers : std::vector<std::int64_t>{};
}

/// Empty when all of @p line has been written, else why not.
std::string append(std::string const& file, std::string const& line) {
  int const out = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (out < 0) return std::strerror(errno);
  ssize_t const written = ::write(out, line.data(), line.size());
  std::string const why = written < 0 ? std::strerror(errno) : "no space left";
  ::close(out);
  return written == static_cast<ssize_t>(line.size()) ? "" : why;
}

}  // namespace

ProductAlgorithms::ProductAlgorithms(std::string file, std::string machine)
    : file_(std::move(file)), machine_(std::move(machine)) {
  std::replace(machine_.begin(), machine_.end(), '\t', ' ');
  std::ifstream in(file_);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string machine_of_line, problem, algorithm;
    std::getline(fields, machine_of_line, '\t');
    std::getline(fields, problem, '\t');
    std::getline(fields, algorithm);
    auto const words = algorithm_of(algorithm);
    auto numbers = problem_of(problem);
    if (machine_of_line == machine_ && words && !numbers.empty())
      known_.emplace(std::move(numbers), *words);
  }
}

std::optional<AlgorithmWords> ProductAlgorithms::find(std::span<std::int64_t const> problem) const {
  auto const found = known_.find({problem.begin(), problem.end()});
  return found == known_.end() ? std::nullopt : std::optional(found->second);
}

void ProductAlgorithms::add(std::span<std::int64_t const> problem,
                            AlgorithmWords const& algorithm) {
  known_[{problem.begin(), problem.end()}] = algorithm;
  std::ostringstream line;
  line << machine_ << '\t';
  for (std::size_t i = 0; i < problem.size(); ++i) line << (i ? " " : "") << problem[i];
  line << '\t' << std::hex;
  for (std::size_t i = 0; i < algorithm.size(); ++i) line << (i ? " " : "") << algorithm[i];
  line << '\n';
  if (auto const why = append(file_, line.str()); !why.empty())
    log::warning(concat("--device_product_algorithms: ", file_, " cannot be written: ", why,
                        "; later runs measure again"));
}

std::size_t fastest_of(std::vector<double> const& seconds) {
  double const shortest = *std::min_element(seconds.begin(), seconds.end());
  auto const first = std::find_if(seconds.begin(), seconds.end(),
                                  [&](double time) { return time <= 1.02 * shortest; });
  return static_cast<std::size_t>(first - seconds.begin());
}

}  // namespace tessera::kernels::detail

#pragma once
/// The named states of a training or a model, in any supported file format: Tessera's and
/// DeepSpeed's checkpoints, Hugging Face models.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/format/directory.hpp"

namespace tessera::checkpoint::detail {

class StateReader {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::int64_t numel = 0;
    std::vector<std::string> aliases;
    std::size_t states = 1;  ///< how many of states() it has, counted from the first (buffers and
                             ///< frozen parameters have weights only)
  };
  virtual ~StateReader() = default;
  std::vector<Tensor> const& tensors() const { return tensors_; }
  std::vector<std::string> const& states() const { return states_; }  ///< "fp32" first
  std::string const& format() const { return format_; }
  std::filesystem::path const& path() const { return path_; }
  std::int64_t step() const { return step_; }  ///< -1: not known
  /// Elements [first, first + numel) of a state as fp32, checked as far as the source has
  /// checksums. Quick when called in order.
  virtual void read(std::size_t tensor, std::size_t state, std::int64_t first, std::int64_t numel,
                    float* out) = 0;

 protected:
  std::vector<Tensor> tensors_;
  std::vector<std::string> states_{"fp32"};
  std::string format_;
  std::filesystem::path path_;
  std::int64_t step_ = -1;
};

/// @param given run directory, checkpoints directory, checkpoint, DeepSpeed's save_dir or tag, a
/// safetensors file or a model directory
/// @throws IoError when nothing is there, DataError
/// @return a reader of the element-wise states, then one for each reduced state, whose tensors have
/// shapes of their own
std::vector<std::unique_ptr<StateReader>> open_states(
    std::filesystem::path const& given, std::string const& tag = "",
    WhenDamaged when_damaged = WhenDamaged::refuse);

}  // namespace tessera::checkpoint::detail

/// Times forward and backward of GPT-2 by unit, without an optimizer:
///   bench.model_step [rows=4] [sequence=256] [fp32|bf16|fp16] [steps=3] [config overrides]
///   [none|light|block] [kernels]
/// "kernels" lists the time of each kernel as well.
/// Times are taken where the model asks for weights and gradients, so nothing inside it is
/// instrumented.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "resident_params.hpp"
#include "tessera/kernels/launch/kernel_times.hpp"
#include "tessera/memory/runtime.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/families/registry.hpp"

namespace {

using namespace tessera;
using Clock = std::chrono::steady_clock;

/// Passes everything on and books the time since the last event on what ran in between.
class TimedParams : public memory::ParamProvider {
 public:
  TimedParams(test::ResidentParams& params, int units)
      : params_(params), head_(memory::UnitIndex(units - 1)) {}

  void begin_pass(memory::Pass pass, std::vector<memory::UnitIndex> acquisitions) override {
    params_.begin_pass(pass, std::move(acquisitions));
    backward_ = false;
    phase_.clear();
    last_ = Clock::now();
  }
  memory::WeightLease acquire(memory::UnitIndex unit, memory::Queue& q) override {
    enter(unit == head_ || (unit == memory::first_unit && !phase_.empty()) ? "head"
          : unit == memory::first_unit                                     ? "embedding"
          : backward_                                                      ? "blocks backward"
                                                                           : "blocks forward");
    return params_.acquire(unit, q);
  }
  memory::GradientLease gradient(memory::UnitIndex unit, memory::Queue& q) override {
    if (unit == memory::first_unit && backward_) enter("embedding backward");
    return params_.gradient(unit, q);
  }
  void gradient_complete(memory::UnitIndex unit, memory::Queue& q) override {
    params_.gradient_complete(unit, q);
    backward_ = true;
    if (unit == memory::first_unit) enter("");
  }
  std::map<std::string, double> seconds;

 private:
  void enter(std::string const& phase) {
    auto const now = Clock::now();
    if (!phase_.empty()) seconds[phase_] += std::chrono::duration<double>(now - last_).count();
    phase_ = phase;
    last_ = now;
  }
  test::ResidentParams& params_;
  memory::UnitIndex head_;
  bool backward_ = false;
  std::string phase_;
  Clock::time_point last_;
};

}  // namespace

int main(int argc, char** argv) {
  auto const argument = [&](int i, char const* otherwise) {
    return std::string(argc > i ? argv[i] : otherwise);
  };
  memory::Runtime const runtime{{}};
  std::int64_t const rows = std::stoll(argument(1, "4")), sequence = std::stoll(argument(2, "256"));
  Dtype const dtype = dtype_from_name(argument(3, "fp32"));
  int const steps = std::stoi(argument(4, "3"));
  auto const lm = model::make_model(
      model::apply_overrides(model::default_config("gpt2"), argument(5, "")), dtype);
  std::string const again = argument(6, "none");
  Recompute const recompute = again == "block"   ? Recompute::block
                              : again == "light" ? Recompute::light
                                                 : Recompute::none;
  std::optional<kernels::KernelTimes> kernel_times;
  if (argument(7, "") == "kernels") kernel_times.emplace();

  test::ResidentParams params(lm->units(), dtype,
                              [](memory::ParameterSpec const& spec, float* out) {
                                model::initialize_parameter(spec, 1, 0, spec.numel(), out);
                              });
  auto const queue = memory::make_inline_queue("compute");
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(rows * sequence));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] =
        static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(lm->vocabulary_size()));

  TimedParams timed(params, static_cast<int>(lm->units().size()));
  std::vector<double> times;
  double loss = 0.0;
  for (int step = 0; step <= steps; ++step) {  // the first one warms up
    if (step == 1) timed.seconds.clear();
    if (step == 1 && kernel_times) kernel_times->take();
    params.begin_step();
    auto const start = Clock::now();
    loss = lm->train({tokens.data(), rows, sequence},
                     {.step = static_cast<std::uint64_t>(step),
                      .gradient_scale = 1.0f / static_cast<float>(tokens.size()),
                      .recompute = recompute},
                     timed, *queue)
               .value();
    if (step > 0) times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::printf("%s, %lld rows of %lld, %s: mean loss %.4f\n", memory::Runtime::description().c_str(),
              static_cast<long long>(rows), static_cast<long long>(sequence),
              std::string(name_of(dtype)).c_str(),
              loss / static_cast<double>(rows * (sequence - 1)));
  for (auto const& [phase, s] : timed.seconds)
    std::printf("%9.2f ms  %s\n", 1e3 * s / steps, phase.c_str());
  if (kernel_times)
    for (auto const& k : kernel_times->take())
      std::printf("%9.2f ms  %s: %s, %lld calls\n", 1e3 * k.seconds / steps, name_of(k.work),
                  k.kernel.c_str(), static_cast<long long>(k.calls / steps));
  double const best = *std::min_element(times.begin(), times.end());
  std::printf(
      "%9.2f ms  best step, %.0f tokens/s; activations %.1f MiB\n", 1e3 * best,
      static_cast<double>(rows * sequence) / best,
      static_cast<double>(memory::MemoryTracker::of_process().peak(memory::Purpose::activations)) /
          0x1.0p20);
}

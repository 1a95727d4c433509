#pragma once
/// A small model with awkward sizes, states whose every element is known, and a directory that goes
/// away.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "scratch_files.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/core/error.hpp"

namespace tessera::test {

namespace fs = std::filesystem;

using ScratchDirectory = ScratchFiles;

inline std::vector<memory::UnitSpec> toy_units(std::int64_t width = 24) {
  auto const p = [](std::string name, std::vector<std::int64_t> shape,
                    std::vector<std::string> aliases = {}) {
    memory::ParameterSpec spec;
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.aliases = std::move(aliases);
    return spec;
  };
  return {{"embedding",
           {p("transformer.wte.weight", {101, width}, {"lm_head.weight"}),
            p("transformer.wpe.weight", {16, width})}},
          {"block.0",
           {p("transformer.h.0.ln_1.weight", {width}),
            p("transformer.h.0.attn.c_attn.weight", {width, 3 * width}),
            p("transformer.h.0.attn.c_attn.bias", {3 * width})}},
          {"head",
           {p("transformer.ln_f.weight", {width}), p("transformer.ln_f.bias", {width}),
            p("scale", {1})}}};
}

/// The value of an element: exact in fp32, different for every tensor, state and step.
inline float element(std::string const& tensor, std::string const& state, std::int64_t index,
                     std::int64_t step) {
  std::size_t const seed = std::hash<std::string>{}(tensor + "|" + state) % 1009;
  return static_cast<float>((static_cast<std::int64_t>(seed) * 7919 + index * 31 + step * 131) %
                            65536) /
             64.0f -
         300.0f;
}

/// The states of one rank, with storage.
class RankState {
 public:
  RankState(zero::PartitionPlan const& plan, int rank,
            std::vector<std::string> names = {"fp32", "exp_avg", "exp_avg_sq"})
      : plan_(plan), rank_(rank), names_(std::move(names)) {
    memory_.resize(names_.size());
    for (auto& m : memory_) m.assign(static_cast<std::size_t>(plan.partition_numel()), -1e30f);
  }
  RankState& fill(std::int64_t step) {
    each([&](std::string const& state, std::string const& tensor, std::int64_t index,
             float& value) { value = element(tensor, state, index, step); });
    return *this;
  }
  /// Elements that differ from those of the step.
  std::int64_t wrong(std::int64_t step) {
    std::int64_t count = 0;
    each([&](std::string const& state, std::string const& tensor, std::int64_t index,
             float& value) { count += value != element(tensor, state, index, step); });
    return count;
  }
  checkpoint::StateViews views() {
    checkpoint::StateViews out;
    for (std::size_t s = 0; s < names_.size(); ++s) {
      out.push_back({names_[s], {}});
      for (auto const& unit : plan_.units())
        out.back().unit_shards.push_back(memory_[s].data() + unit.partition_offset.value());
    }
    return out;
  }
  std::vector<float>& memory(std::size_t state) { return memory_[state]; }

 private:
  template <class F>
  void each(F&& f) {
    for (std::size_t s = 0; s < names_.size(); ++s)
      for (auto const& extent : plan_.extents(Rank(rank_))) {
        auto const& slot =
            plan_.unit(extent.unit).parameters[static_cast<std::size_t>(extent.parameter)];
        for (std::int64_t i = 0; i < extent.numel; ++i)
          f(names_[s], slot.name, extent.parameter_offset.value() + i,
            memory_[s][static_cast<std::size_t>(extent.partition_offset.value() + i)]);
      }
  }
  zero::PartitionPlan const& plan_;
  int rank_;
  std::vector<std::string> names_;
  std::vector<std::vector<float>> memory_;
};

inline checkpoint::SaveRequest request_for(fs::path const& checkpoints, std::int64_t step,
                                           zero::PartitionPlan const& plan,
                                           std::vector<memory::UnitSpec> const& units) {
  return {.directory = checkpoints,
          .step = step,
          .tokens = step * 1000,
          .samples = step * 8,
          .zero_stage = 2,
          .run_id = "run-7",
          .plan = plan,
          .units = units,
          .keep = 0,
          .model_config = ConfigTree::parse(
              R"({"model_type": "gpt2", "n_embd": 24, "dtype": "float32"})", "test"),
          .resolved_config = ConfigTree::parse(R"({"learning_rate": 1e-3})", "test"),
          .trainer_state = ConfigTree::parse(R"({"epoch": 0.5, "seed": 42})", "test"),
          .versions = ConfigTree::parse(R"({"tessera": "0.1.0"})", "test")};
}

inline std::vector<Rank> starts_at(std::initializer_list<int> ranks) {
  std::vector<Rank> out;
  for (int const rank : ranks) out.push_back(Rank(rank));
  return out;
}

/// Saves a checkpoint of @p ranks ranks from this process.
inline checkpoint::SavedCheckpoint save_toy(fs::path const& checkpoints, std::int64_t step,
                                            int ranks, int keep = 0, std::int64_t width = 24,
                                            std::vector<Rank> const& file_starts = {}) {
  auto const units = toy_units(width);
  zero::PartitionPlan const plan(units, ranks);
  std::vector<RankState> states;
  for (int r = 0; r < ranks; ++r) states.emplace_back(plan, r).fill(step);
  std::vector<checkpoint::StateViews> views;
  for (auto& state : states) views.push_back(state.views());
  auto request = request_for(checkpoints, step, plan, units);
  request.keep = keep;
  request.file_starts = file_starts;
  return checkpoint::save_all(request, views);
}

/// Saves a checkpoint of two ranks in which one value of the first rank is not a number.
inline void save_not_a_number(fs::path const& checkpoints, std::int64_t step) {
  auto const units = toy_units();
  zero::PartitionPlan const plan(units, 2);
  RankState first(plan, 0), second(plan, 1);
  first.fill(step).memory(0)[0] = std::nanf("");
  auto request = request_for(checkpoints, step, plan, units);
  request.nonfinite = checkpoint::NonFiniteState::record;
  checkpoint::save_all(request, {first.views(), second.fill(step).views()});
}

inline std::string read_file(fs::path const& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}
inline void write_file(fs::path const& file, std::string const& text) {
  std::ofstream(file, std::ios::binary) << text;
}
inline void flip_bit(fs::path const& file, std::int64_t offset) {
  std::fstream f(file, std::ios::binary | std::ios::in | std::ios::out);
  f.seekg(offset);
  char const c = static_cast<char>(f.get() ^ 0x10);
  f.seekp(offset);
  f.put(c);
}

/// The message of the error of this type that @p action throws.
template <class ErrorType, class F>
std::string message_of(F&& action) {
  try {
    action();
  } catch (ErrorType const& e) {
    return e.what();
  } catch (std::exception const& e) {
    ADD_FAILURE() << "another error: " << e.what();
    return "";
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace tessera::test

#include "optimizer/state_storage.hpp"

#include <utility>

#include "layout/unit_views.hpp"
#include "tessera/core/error.hpp"

namespace tessera::zero::detail {
namespace {

class MemoryStorage final : public StateStorage {
 public:
  MemoryStorage(StorageInputs const& inputs, UnitIndex begin, UnitIndex end)
      : states_(inputs.states), weights_(inputs.weights), space_(inputs.space) {
    bool const is_last = end == inputs.plan.end_unit();
    for (std::size_t k = 0; k < states_.size(); ++k) {
      auto const& layout = states_[k];
      auto const& ownership = layout.ownership;
      std::int64_t const first = begin < inputs.plan.end_unit() ? ownership.state_offset(begin) : 0;
      first_.push_back(first);
      auto& buffer = buffers_.emplace_back();
      if (layout.home != StateHome::memory) continue;
      std::int64_t const last = is_last ? ownership.state_numel() : ownership.state_offset(end);
      buffer = {
          layout.spec.name,
          k == master_weights ? memory::Purpose::master_weights : memory::Purpose::optimizer_state,
          static_cast<std::size_t>(last - first) * size_of(layout.spec.dtype), space_};
    }
  }

  void* region(std::size_t state, UnitIndex unit) const override {
    auto const& layout = states_[state];
    if (layout.home == StateHome::working_weights) return weights_.region(unit);
    TESSERA_EXPECT(layout.home == StateHome::memory);
    return offset(buffers_[state].data(), layout.spec.dtype,
                  layout.ownership.state_offset(unit) - first_[state]);
  }
  void* region_outside_step(std::size_t state, UnitIndex unit) const override {
    bool const is_weights = states_[state].home == StateHome::working_weights;
    return is_weights ? weights_.region_outside_step(unit) : region(state, unit);
  }
  void* values(std::size_t state, UpdateStep const& step) const override {
    return offset(region(state, step.range.unit), states_[state].spec.dtype, step.range.begin);
  }
  memory::MemorySpace space(std::size_t state) const override {
    bool const is_weights = states_[state].home == StateHome::working_weights;
    return is_weights && weights_.report().host.bytes > 0 ? memory::MemorySpace::host : space_;
  }
  std::size_t bytes(std::size_t state) const override { return buffers_[state].bytes(); }

 private:
  std::vector<StateLayout> const& states_;
  WeightStore& weights_;
  memory::MemorySpace space_;
  std::vector<memory::Buffer> buffers_;  ///< buffers of each state; empty: it has another home
  /// Offsets of each state: Ownership::state_offset() of the units
  std::vector<std::int64_t> first_;
};

std::vector<std::string> names_on_drive(std::vector<StateLayout> const& states) {
  std::vector<std::string> out;
  for (auto const& state : states)
    if (state.home == StateHome::drive) out.push_back(state.spec.name);
  return out;
}

class DriveStorage final : public StateStorage {
 public:
  DriveStorage(StorageInputs const& inputs, OptimizerSwap const& swap,
               std::unique_ptr<StateStorage> inner)
      : inner_(std::move(inner)), swapped_(swap, names_on_drive(inputs.states), regions(inputs)) {
    std::size_t files = 0;
    for (auto const& state : inputs.states)
      files_.push_back(state.home == StateHome::drive ? std::optional(files++) : std::nullopt);
  }

  void* region(std::size_t state, UnitIndex unit) const override {
    auto const file = files_[state];
    return file ? swapped_.region(*file, unit) : inner_->region(state, unit);
  }
  void* region_outside_step(std::size_t state, UnitIndex unit) const override {
    return files_[state] ? region(state, unit) : inner_->region_outside_step(state, unit);
  }
  void* values(std::size_t state, UpdateStep const& step) const override {
    auto const file = files_[state];
    return file ? swapped_.values(step.index, *file) : inner_->values(state, step);
  }
  memory::MemorySpace space(std::size_t state) const override { return inner_->space(state); }
  std::size_t bytes(std::size_t state) const override { return inner_->bytes(state); }

  void open(memory::Queue& queue, UpdateStep const& step) override {
    swapped_.acquire(queue, step.index);
  }
  void close(memory::Queue& queue, UpdateStep const& step, Values values) override {
    swapped_.release(queue, step.index, values);
  }
  void finish_transfers() override { swapped_.finish_transfers(); }
  DriveUse drive_use() const override {
    return {swapped_.file_bytes(), swapped_.buffer_bytes(), swapped_.use()};
  }
  QuantizedState* quantized(std::size_t state) const override { return inner_->quantized(state); }

 private:
  static std::vector<SwappedStates::Region> regions(StorageInputs const& inputs) {
    std::vector<SwappedStates::Region> out;
    auto const& ownership = inputs.states[master_weights].ownership;
    for (UnitIndex u = first_unit; u < inputs.plan.end_unit(); ++u)
      out.push_back({inputs.plan.unit(u).name, ownership.numel(u)});
    return out;
  }

  std::unique_ptr<StateStorage> inner_;
  SwappedStates swapped_;
  std::vector<std::optional<std::size_t>> files_;  ///< files of each state; none: `inner_` has it
};

class QuantizedStorage final : public StateStorage {
 public:
  QuantizedStorage(StorageInputs const& inputs, std::unique_ptr<StateStorage> inner)
      : inner_(std::move(inner)) {
    for (auto const& state : inputs.states)
      states_.push_back(
          state.home == StateHome::quantized
              ? std::make_unique<QuantizedState>(state.spec, state.ownership, inputs.space)
              : nullptr);
  }

  void* region(std::size_t state, UnitIndex unit) const override {
    return states_[state] ? states_[state]->codes(unit) : inner_->region(state, unit);
  }
  void* region_outside_step(std::size_t state, UnitIndex unit) const override {
    return states_[state] ? region(state, unit) : inner_->region_outside_step(state, unit);
  }
  void* values(std::size_t state, UpdateStep const& step) const override {
    if (!states_[state]) return inner_->values(state, step);
    auto* const codes = states_[state]->codes(step.range.unit);
    return codes ? codes + step.range.begin : nullptr;
  }
  memory::MemorySpace space(std::size_t state) const override { return inner_->space(state); }
  std::size_t bytes(std::size_t state) const override {
    return states_[state] ? states_[state]->bytes() : inner_->bytes(state);
  }

  void open(memory::Queue& queue, UpdateStep const& step) override { inner_->open(queue, step); }
  void close(memory::Queue& queue, UpdateStep const& step, Values values) override {
    inner_->close(queue, step, values);
  }
  void finish_transfers() override { inner_->finish_transfers(); }
  DriveUse drive_use() const override { return inner_->drive_use(); }
  QuantizedState* quantized(std::size_t state) const override { return states_[state].get(); }

 private:
  std::unique_ptr<StateStorage> inner_;
  std::vector<std::unique_ptr<QuantizedState>> states_;  ///< null: `inner_` has the state
};

}  // namespace

std::unique_ptr<StateStorage> make_memory_storage(StorageInputs const& inputs, UnitIndex begin,
                                                  UnitIndex end) {
  return std::make_unique<MemoryStorage>(inputs, begin, end);
}

std::unique_ptr<StateStorage> make_drive_storage(StorageInputs const& inputs,
                                                 OptimizerSwap const& swap,
                                                 std::unique_ptr<StateStorage> inner) {
  return std::make_unique<DriveStorage>(inputs, swap, std::move(inner));
}

std::unique_ptr<StateStorage> make_quantized_storage(StorageInputs const& inputs,
                                                     std::unique_ptr<StateStorage> inner) {
  return std::make_unique<QuantizedStorage>(inputs, std::move(inner));
}

}  // namespace tessera::zero::detail

#include "gradients/quantized_reduce.hpp"

#include <algorithm>
#include <utility>

#include "tessera/kernels/elementwise/elementwise.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::zero::detail {

QuantizedReduce::QuantizedReduce(StoreContext const& context)
    : context_(context),
      feedback_(settings<ShardedWeights>(context.config).quantized_gradients->feedback),
      keep_(feedback_.value_or(QuantizedGradients::ErrorFeedback{}).beta),
      codes_("quantized gradients", Dtype::uint8, context.comm),
      sums_("sums of the nodes' gradients", Dtype::fp32, context.comm),
      errors_(context.plan.units().size()) {}

kernels::QuantizedRegions QuantizedReduce::regions(Level level, UnitIndex unit,
                                                   std::int64_t count) const {
  return {level == Level::node ? node_format : rail_format, context_.plan.unit(unit).shard_numel,
          count};
}

void* QuantizedReduce::errors(std::optional<CommBuffer>& memory, Dtype dtype, std::int64_t numel) {
  if (!feedback_) return nullptr;
  if (!memory) {
    memory.emplace(context_.comm, "errors of quantized gradients", memory::Purpose::communication,
                   dtype, numel);
    error_bytes_ += memory->bytes();
  }
  TESSERA_EXPECT(memory->dtype() == dtype);
  return memory->at(0);
}

/// By the optimizer's steps, which a resumed run continues to count. A skipped step is repeated.
void QuantizedReduce::reset(Errors& errors, std::int64_t step) {
  if (!feedback_ || (step - 1) % feedback_->reset_steps != 0 || errors.reset_at == step) return;
  errors.reset_at = step;
  for (auto* memory : {&errors.of_unit, &errors.of_sums})
    if (*memory) memory::zero(context_.compute, (*memory)->at(0), (*memory)->bytes());
}

/// Region q of the unit, of rank q = (node, place), becomes that of (place, node): what goes to one
/// rank of this node is together.
void QuantizedReduce::start(UnitIndex unit, memory::TensorView gradients, memory::TensorView out,
                            GradientFlow::MicroStep micro, Reduced reduced) {
  advance();
  auto& errors_of_unit = errors_[position(unit)];
  if (micro.first) reset(errors_of_unit, micro.step);
  auto const codes = regions(first_level(), unit, context_.plan.ranks());
  Sum sum{unit,
          out,
          micro.first ? memory::WriteMode::overwrite : memory::WriteMode::add,
          std::move(reduced),
          codes_.take(codes.bytes()),
          codes_.take(codes.bytes()),
          {},
          !context_.node};
  context_.compute.wait(sum.sent.ready);
  kernels::encode_chunks(
      context_.compute, sum.sent.data, gradients, codes,
      {.inner = node_ranks(),
       .error = errors(errors_of_unit.of_unit, gradients.dtype(), gradients.numel()),
       .keep = keep_});
  exchange(sum, codes, context_.node ? *context_.node : *context_.rail);
  in_flight_.push_back(std::move(sum));
}

void QuantizedReduce::exchange(Sum& sum, kernels::QuantizedRegions const& codes,
                               comm::Collectives& ranks) {
  context_.compute.wait(sum.received.ready);
  auto const n = codes.bytes();
  sum.arriving = ranks.all_to_all(sum.sent.data.rows(0, n), sum.received.data.rows(0, n),
                                  context_.compute.record());
  if (!context_.config.overlap_comm) ranks.wait(sum.arriving);
}

/// Each sum in flight advances by one exchange.
void QuantizedReduce::advance() {
  std::deque<Sum> going;
  for (auto& sum : std::exchange(in_flight_, {})) {
    std::exchange(sum.arriving, {}).order_before(context_.compute);
    if (sum.between_nodes || !context_.rail) {
      complete(sum);
    } else {
      exchange_sums(sum);
      going.push_back(std::move(sum));
    }
  }
  in_flight_ = std::move(going);
}

/// The sums of this node, in fp32, of the shards that this rank passes on.
void QuantizedReduce::exchange_sums(Sum& sum) {
  auto const received = regions(Level::node, sum.unit, nodes()),
             codes = regions(Level::rail, sum.unit, nodes());
  auto const of_node = sums_.take(codes.numel * codes.count);
  auto& compute = context_.compute;
  compute.wait(of_node.ready);
  kernels::sum_chunks(compute, of_node.data, sum.received.data, received, node_ranks(),
                      memory::WriteMode::overwrite);
  kernels::encode_chunks(
      compute, sum.sent.data.rows(0, codes.bytes()), of_node.data, codes,
      {.inner = 1,
       .error = errors(errors_[position(sum.unit)].of_sums, Dtype::fp32, of_node.data.numel()),
       .keep = keep_});
  sums_.give_back(of_node, compute.record());
  sum.between_nodes = true;
  exchange(sum, codes, *context_.rail);
}

void QuantizedReduce::complete(Sum& sum) {
  auto const parts = context_.rail ? nodes() : node_ranks();
  auto const codes = regions(context_.rail ? Level::rail : Level::node, sum.unit, 1);
  kernels::sum_chunks(context_.compute, sum.out, sum.received.data.rows(0, codes.bytes() * parts),
                      codes, parts, sum.mode);
  auto const done = context_.compute.record();
  codes_.give_back(sum.sent, done);
  codes_.give_back(sum.received, done);
  if (sum.reduced) sum.reduced(done);
}

void QuantizedReduce::finish() {
  while (!in_flight_.empty()) advance();
}

std::size_t QuantizedReduce::bytes() const { return codes_.bytes() + sums_.bytes() + error_bytes_; }

void QuantizedReduce::save_errors(std::vector<StateView>& states) {
  if (!feedback_) return;
  if (saved_errors_.bytes() == 0)
    saved_errors_ = {gradient_error_name, memory::Purpose::data,
                     static_cast<std::size_t>(context_.plan.partition_numel()) * sizeof(float),
                     memory::MemorySpace::host};
  StateView view{gradient_error_name, {}, optim::Extent::elementwise};
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) {
    view.unit_shards.push_back(saved_errors(u));
    if (!errors_[position(u)].of_unit) continue;  // no step yet: zeros
    gather_errors(u);
    share_errors(u);
  }
  auto const first_reduced = std::ranges::find_if(
      states, [](auto const& state) { return state.extent != optim::Extent::elementwise; });
  states.insert(first_reduced, std::move(view));
}

void QuantizedReduce::load_errors() {
  if (saved_errors_.bytes() == 0) return;
  for (UnitIndex u = first_unit; u < context_.plan.end_unit(); ++u) share_errors(u);
}

float* QuantizedReduce::saved_errors(UnitIndex unit) const {
  return static_cast<float*>(saved_errors_.data()) +
         context_.plan.unit(unit).partition_offset.value();
}

/// What all ranks and all nodes add to the elements of this rank's shard.
void QuantizedReduce::gather_errors(UnitIndex unit) {
  auto& queue = context_.compute;
  auto const& errors = errors_[position(unit)];
  std::int64_t const n = context_.plan.unit(unit).shard_numel,
                     padded = context_.plan.unit(unit).padded_numel;
  auto const of_unit = sums_.take(padded), sum = sums_.take(n);
  queue.wait(of_unit.ready), queue.wait(sum.ready);
  kernels::cast(queue, of_unit.data, errors.of_unit->view(0, padded));
  context_.comm.wait(context_.comm.reduce_scatter(of_unit.data, {n, n, 0}, sum.data,
                                                  memory::WriteMode::overwrite, queue.record()));
  if (errors.of_sums)
    context_.rail->wait(context_.rail->reduce_scatter(errors.of_sums->view(0, n * nodes()),
                                                      {n, n, 0}, sum.data, memory::WriteMode::add,
                                                      queue.record()));
  copy_saved(unit, sum.data, ShardDirection::to_host);
  sums_.give_back(of_unit, queue.record());
  sums_.give_back(sum, queue.record());
}

/// The errors of the nodes' sums become part of those of the ranks.
void QuantizedReduce::share_errors(UnitIndex unit) {
  auto& queue = context_.compute;
  auto& errors_of_unit = errors_[position(unit)];
  std::int64_t const n = context_.plan.unit(unit).shard_numel,
                     padded = context_.plan.unit(unit).padded_numel;
  (void)errors(errors_of_unit.of_unit, context_.config.dtype, padded);
  auto const of_unit = sums_.take(padded), sum = sums_.take(n);
  queue.wait(of_unit.ready), queue.wait(sum.ready);
  copy_saved(unit, sum.data, ShardDirection::to_state);
  context_.comm.wait(context_.comm.all_gather(sum.data, of_unit.data, {n, n, 0}, queue.record()));
  kernels::scale(queue, of_unit.data, 1.0f / static_cast<float>(context_.plan.ranks()));
  kernels::cast(queue, errors_of_unit.of_unit->view(0, padded), of_unit.data);
  if (auto const& of_sums = errors_of_unit.of_sums)
    memory::zero(queue, of_sums->at(0), of_sums->bytes());
  sums_.give_back(of_unit, queue.record());
  sums_.give_back(sum, queue.record());
}

void QuantizedReduce::copy_saved(UnitIndex unit, memory::TensorView shard,
                                 ShardDirection direction) {
  if (memory::BufferPlanning::active()) return;  // the host memory is counted, but does not exist
  copy_shards(context_.compute,
              {{saved_errors(unit), shard, memory::memory_space_of(context_.compute)}}, direction);
}

}  // namespace tessera::zero::detail

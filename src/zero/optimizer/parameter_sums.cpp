#include "optimizer/parameter_sums.hpp"

#include "layout/group_runs.hpp"
#include "tessera/memory/device.hpp"

namespace tessera::zero::detail {

CommBuffer make_comm_buffer(StoreContext const& context, std::string const& name, Dtype dtype,
                            std::int64_t numel, memory::MemorySpace space) {
  auto const purpose = memory::Purpose::workspace;
  return space == memory::memory_space_of(context.compute)
             ? CommBuffer(context.comm, name, purpose, dtype, numel)
             : CommBuffer::in_host_memory(name, purpose, dtype, numel);
}

ParameterSumBuffer::ParameterSumBuffer(StoreContext const& context,
                                       optim::SummingOptimizer const& optimizer,
                                       memory::MemorySpace space)
    : context_(context), spec_(optimizer.spec()) {
  std::int64_t end = 0;
  for (int round = 0; round < optimizer.rounds(); ++round) {
    round_begins_.push_back(end);
    auto& of_units = offsets_.emplace_back();
    for (auto const& unit : context_.plan.units()) {
      auto& of_unit = of_units.emplace_back();
      for (auto const& parameter : unit.parameters) {
        of_unit.push_back(end);
        end += optimizer.sum_count(round, parameter.shape);
      }
    }
  }
  round_begins_.push_back(end);
  sums_ = make_comm_buffer(context_, "sums of parameters", Dtype::fp64, end, space);
}

std::vector<double*> ParameterSumBuffer::of_parameter(UnitIndex unit, std::size_t parameter) const {
  std::vector<double*> out;
  for (auto const& of_units : offsets_)
    out.push_back(static_cast<double*>(sums_.at(of_units[position(unit)][parameter])));
  return out;
}

optim::ParameterSums ParameterSumBuffer::of_runs(UnitIndex unit, UnitOffset begin,
                                                 UnitOffset end) const {
  auto const& layout = context_.plan.unit(unit);
  optim::ParameterSums out;
  out.of.resize(offsets_.size());
  for (auto const& run : group_runs(layout, begin, end, spec_)) {
    for (auto& of_round : out.of) of_round.emplace_back();
    for (auto const& part : run.parameters) {
      auto const sums = of_parameter(unit, parameter_at(layout, run.begin + part.segment_offset));
      for (std::size_t round = 0; round < sums.size(); ++round)
        out.of[round].back().push_back(sums[round]);
    }
  }
  return out;
}

void ParameterSumBuffer::clear(memory::Queue& queue) const {
  memory::zero(queue, sums_.at(0), sums_.bytes());
}

void ParameterSumBuffer::add_over_ranks(memory::Queue& queue, int round) const {
  if (context_.comm.size() == 1) return;
  auto const index = static_cast<std::size_t>(round);
  std::int64_t const begin = round_begins_[index], end = round_begins_[index + 1];
  auto const of_round = sums_.view(begin, end - begin);
  if (!context_.contributes()) memory::zero(queue, of_round.data(), of_round.bytes());
  auto& ranks = context_.all_ranks();
  auto const complete = ranks.all_reduce(of_round, comm::ReduceOp::sum, queue.record());
  complete.order_before(queue);
  if (memory::memory_space_of(queue) == memory::MemorySpace::host) ranks.wait(complete);
}

}  // namespace tessera::zero::detail

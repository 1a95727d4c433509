#pragma once
/// How much of its communication the order of a training step can hide: a schedule of one processor
/// and one network, from the times of the units.

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tessera::test {

/// Seconds of a unit's computation and of its messages. Where a tied embedding is gathered once
/// more for the head, that message belongs to the head.
struct UnitCost {
  double update = 0.0, forward = 0.0, backward = 0.0;
  double gather = 0.0;        ///< gather of updated weights, before the forward pass needs them
  double gather_again = 0.0;  ///< stage 3: before the backward pass needs them
  double reduce = 0.0;
};

struct StepCost {
  std::vector<UnitCost> units;  ///< in the order of the forward pass
  double norm = 0.0;            ///< the all-reduce between the last reduction and the first update

  double computation() const {
    double sum = 0.0;
    for (auto const& u : units) sum += u.update + u.forward + u.backward;
    return sum;
  }
  double communication() const {
    double sum = norm;
    for (auto const& u : units) sum += u.gather + u.gather_again + u.reduce;
    return sum;
  }
};

/// A step whose update needs the norm of all gradients. Messages are one after the
/// other on the network, and nothing waits but for what it needs:
///   update    u = 1..n:  cpu += update_u;  net = max(net, cpu) + gather_u;  there_u = net
///   forward   u = 1..n:  cpu = max(cpu, there_u) + forward_u
///   backward  u = n..1:  cpu = max(cpu, again_u) + backward_u;  net = max(net, cpu) + reduce_u
/// with again_u the end of the second gathers, which are on the network before the reductions. The
/// step takes max(cpu, net) + norm.
inline double shortest_step(StepCost const& step) {
  double cpu = 0.0, net = 0.0;
  std::vector<double> there(step.units.size()), again(step.units.size());
  for (std::size_t i = 0; i < step.units.size(); ++i) {
    auto const& u = step.units[i];
    cpu += u.update;
    if (u.gather > 0.0) there[i] = net = std::max(net, cpu) + u.gather;
  }
  for (std::size_t i = 0; i < step.units.size(); ++i)
    cpu = std::max(cpu, there[i]) + step.units[i].forward;
  for (std::size_t i = step.units.size(); i-- > 0;)
    if (step.units[i].gather_again > 0.0) again[i] = net += step.units[i].gather_again;
  for (std::size_t i = step.units.size(); i-- > 0;) {
    auto const& u = step.units[i];
    cpu = std::max(cpu, again[i]) + u.backward;
    if (u.reduce > 0.0) net = std::max(net, cpu) + u.reduce;
  }
  return std::max(cpu, net) + step.norm;
}

/// 1 - (shortest step - computation) / communication.
inline double hidden_bound(StepCost const& step) {
  double const communication = step.communication();
  if (communication <= 0.0) return 0.0;
  return 1.0 - (shortest_step(step) - step.computation()) / communication;
}

}  // namespace tessera::test

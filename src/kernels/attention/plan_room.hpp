#pragma once
/// What runs where the workspace of a library's plan does not fit into memory.

#include <string>
#include <utility>

#include "tessera/core/log.hpp"
#include "tessera/core/text.hpp"

namespace tessera::kernels::detail {

/// Replaces @p plan, whose `workspace_bytes` cannot be allocated, by a plan with a smaller one, or
/// by an empty plan, for which the portable kernel computes. A line of the log says which.
/// @param build_smaller  a plan with another algorithm; empty (bool(plan) is false): there is none
/// @param reserve  whether that many bytes can be allocated now
template <class Plan, class Build, class Reserve>
void make_room(Plan& plan, Build const& build_smaller, Reserve const& reserve) {
  if (!plan || reserve(plan.workspace_bytes)) return;
  auto const text = human_bytes(plan.workspace_bytes);
  Plan smaller = build_smaller();
  bool const fits =
      smaller && smaller.workspace_bytes < plan.workspace_bytes && reserve(smaller.workspace_bytes);
  log::warning(concat(
      "cuDNN's attention needs a workspace of ", text, ", which the device has no room for; ",
      fits ? concat("its algorithm with ", human_bytes(smaller.workspace_bytes), " computes")
           : "the portable kernel computes",
      " instead, slower; a smaller --per_device_train_batch_size or --deterministic false needs "
      "less"));
  plan = fits ? std::move(smaller) : Plan{};
}

}  // namespace tessera::kernels::detail

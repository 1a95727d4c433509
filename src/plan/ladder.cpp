#include "tessera/plan/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::plan {
namespace {

using config::OffloadDevice;

constexpr int most_nodes = 65'536;
constexpr std::int64_t shortest_block = 128;

/// The open choice with the least memory where the model computes.
std::optional<Choice> smallest(Planner& planner) {
  PlannedChoice const* least = nullptr;
  auto const need = [&](PlannedChoice const& p) {
    return planner.computes_on_device() ? p.device_bytes : p.host_bytes;
  };
  for (auto const& choice : planner.open()) {
    auto const& planned = planner.evaluate(choice);
    if (planned.refused.empty() && (!least || need(planned) < need(*least))) least = &planned;
  }
  return least ? std::optional(least->choice) : std::nullopt;
}

/// Whether @p choice fits after @p change of the request.
bool fits_after(Planner const& planner, Choice const& choice,
                std::function<void(PlanRequest&)> const& change) {
  auto request = planner.request();
  request.machine.reset();
  change(request);
  try {
    Planner changed(std::move(request));
    auto const& planned = changed.evaluate(choice);
    return planned.refused.empty() && planned.fits;
  } catch (Error const&) {
    return false;  // a run that is refused does not fit
  }
}

}  // namespace

std::vector<LadderStep> ladder(Planner& planner) {
  auto choice = given_choice(planner.request().arguments, planner.given());
  std::int64_t const batch = choice.micro_batch * choice.accumulation;
  choice.stage = 0;
  choice.optimizer = choice.parameters = OffloadDevice::none;
  choice.recompute = Recompute::none;
  std::vector<LadderStep> out;
  auto const add = [&](std::string change) {
    out.push_back({std::move(change), planner.evaluate(choice)});
  };
  add("stage 0, as given");
  if (choice.micro_batch > 1) {
    choice.micro_batch = 1;
    choice.accumulation = batch;
    add(fmt::format(
        "--per_device_train_batch_size 1 with --gradient_accumulation_steps {}: the same batch",
        batch));
  }
  choice.recompute = Recompute::light;
  add("--recompute light");
  choice.recompute = Recompute::block;
  add("--gradient_checkpointing");
  bool const has_device = planner.computes_on_device();
  choice.stage = 2;
  add("stage 2");
  if (has_device) {
    choice.optimizer = OffloadDevice::cpu;
    add("stage 2 + offload_optimizer to the CPU");
  }
  choice.stage = 3;
  choice.optimizer = OffloadDevice::none;
  add("stage 3");
  if (has_device) {
    choice.optimizer = OffloadDevice::cpu;
    add("stage 3 + offload_optimizer to the CPU");
    choice.parameters = OffloadDevice::cpu;
    add("stage 3 + offload_optimizer and offload_param to the CPU");
  }
  if (planner.request().limits.nvme == 0) return out;
  choice.optimizer = OffloadDevice::nvme;
  choice.parameters = OffloadDevice::none;
  add("stage 3 + offload_optimizer to NVMe");
  choice.parameters = OffloadDevice::nvme;
  add("stage 3 + offload_optimizer and offload_param to NVMe");
  return out;
}

std::vector<std::string> changes_that_fit(Planner& planner) {
  auto const least = smallest(planner);
  if (!least) return {};
  auto const& request = planner.request();
  std::vector<std::string> out;
  auto const fits = [&](std::function<void(PlanRequest&)> const& change) {
    return fits_after(planner, *least, change);
  };
  if (fits([](PlanRequest& r) { r.arguments.optim = "adamw_8bit"; }))
    out.emplace_back("--optim adamw_8bit");
  for (std::int64_t length = planner.sequence() / 2; length >= shortest_block; length /= 2)
    if (fits([&](PlanRequest& r) { r.arguments.block_size = length; })) {
      out.push_back(fmt::format("--block_size {}", length));
      break;
    }
  for (int nodes = 2 * request.cluster.nodes; nodes <= most_nodes; nodes *= 2)
    if (fits([&](PlanRequest& r) { r.cluster.nodes = nodes; })) {
      out.push_back(fmt::format("--nodes {}", nodes));
      break;
    }
  if (auto const need = need_text(planner.evaluate(*least), request.limits); !need.empty())
    out.push_back(need + " per rank");
  return out;
}

}  // namespace tessera::plan

#include "fuzz.hpp"
#include "tessera/checkpoint/format/manifest.hpp"
#include "tessera/checkpoint/save/save.hpp"
#include "tessera/checkpoint/tools/verify.hpp"

namespace tessera::fuzz {

std::filesystem::path tiny_checkpoint(std::string const& name, int ranks) {
  auto const parameter = [](std::string label, std::vector<std::int64_t> shape,
                            std::vector<std::string> aliases = {}) {
    memory::ParameterSpec spec;
    spec.name = std::move(label);
    spec.shape = std::move(shape);
    spec.aliases = std::move(aliases);
    return spec;
  };
  std::vector<memory::UnitSpec> const units = {
      {"embedding", {parameter("wte.weight", {5, 3}, {"lm_head.weight"})}},
      {"head", {parameter("ln_f.bias", {3})}}};
  zero::PartitionPlan const plan(units, ranks);
  checkpoint::StreamedStates states{{"fp32", "exp_avg"}, {}};
  states.read = [](std::string const&, zero::ShardExtent const&, std::int64_t first,
                   std::int64_t numel, float* out) {
    for (std::int64_t i = 0; i < numel; ++i) out[i] = static_cast<float>(first + i);
  };
  checkpoint::SaveRequest const request{.directory = folder() / name,
                                        .step = 1,
                                        .zero_stage = 1,
                                        .run_id = "fuzz",
                                        .plan = plan,
                                        .units = units,
                                        .model_config = ConfigTree::object(),
                                        .resolved_config = ConfigTree::object(),
                                        .trainer_state = ConfigTree::object(),
                                        .versions = ConfigTree::object()};
  return checkpoint::save_all(request, states).directory;
}

/// A shard whose manifest takes its size for right: HDF5 sees the bytes, in a child process.
void shard(std::string_view bytes) {
  static std::filesystem::path const step = tiny_checkpoint("run", 1);
  static checkpoint::Manifest const whole = checkpoint::read_manifest(step);
  auto manifest = whole;
  manifest.shards[0].bytes = static_cast<std::int64_t>(bytes.size());
  try {
    put("run/step_00000001/manifest.json", checkpoint::manifest_text(manifest));
    put("run/step_00000001/" + manifest.shards[0].file, bytes);
    (void)checkpoint::verify(step);
  } catch (Error const&) {
  }
}

}  // namespace tessera::fuzz

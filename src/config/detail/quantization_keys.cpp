#include "detail/quantization_keys.hpp"

#include "detail/deepspeed_zero.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

constexpr char const* weights = "zero_optimization.zero_quantized_weights";
constexpr char const* gradients = "zero_optimization.zero_quantized_gradients";
constexpr char const* loco = "zero_optimization.zeropp_loco_param";

ErrorFeedback feedback_of(ConfigTree const& block, std::string const& source) {
  TESSERA_VALIDATE(block.is_object(), ConfigError, source, ": ", loco, " is ", block.type_name(),
                   "; write a block with err_beta and reset_T");
  ErrorFeedback out;
  for (auto const& [key, value] : block.as_object()) {
    TESSERA_VALIDATE(key == "err_beta" || key == "reset_T", ConfigError, source, ": unknown key ",
                     loco, ".", key, "; the block has err_beta and reset_T");
    TESSERA_VALIDATE(value.is_number(), ConfigError, source, ": ", loco, ".", key, " is ",
                     value.type_name(), "; it must be a number");
    (key == "err_beta" ? out.beta : out.reset_steps) = value.as_double();
  }
  TESSERA_VALIDATE(out.beta >= 0.0 && out.beta <= 1.0, ConfigError, source, ": ", loco,
                   ".err_beta is ", out.beta, "; use a number from 0 to 1");
  TESSERA_VALIDATE(
      out.reset_steps >= 1.0 && out.reset_steps <= 1e15 &&
          out.reset_steps == static_cast<double>(static_cast<std::int64_t>(out.reset_steps)),
      ConfigError, source, ": ", loco, ".reset_T is ", out.reset_steps,
      "; use a number of steps from 1 on");
  return out;
}

}  // namespace

void add_quantization(OptionTable& t) {
  t.add(OptionType::boolean, weights, false,
        "ZeRO++: all-gathers of the weights of stage 3 move codes of 8 bits")
      .auto_is(by_default);
  t.add(OptionType::boolean, "zero_optimization.zero_quantized_nontrainable_weights", false,
        "ZeRO++: frozen weights are kept and gathered as codes")
      .refuse(
          "weights that do not train are kept in the working dtype; remove it, or use "
          "zero_quantized_weights, which gathers them as codes, too");
  t.add(OptionType::boolean, gradients, false,
        "ZeRO++: gradients of stage 3 are reduced as codes, of 8 bits inside nodes and of 4 "
        "between nodes")
      .auto_is(by_default);
  t.add(OptionType::json, loco, {},
        "LoCo, with zero_quantized_gradients: a block with err_beta (0.8) and reset_T (1024 "
        "steps)")
      .auto_is(by_default);
}

void resolve_quantization(std::function<ConfigTree const*(std::string const& key)> const& written,
                          std::string const& source, ResolvedConfig& config) {
  auto const is_true = [&](char const* key) {
    auto const* value = written(key);
    return value && value->as_bool();
  };
  config.quantized_weights = is_true(weights);
  config.quantized_gradients = is_true(gradients);
  for (char const* key : {weights, gradients})
    TESSERA_VALIDATE(!is_true(key) || config.stage == 3, ConfigError, source, ": ", key,
                     " is true at stage ", config.stage,
                     "; ZeRO++ is of stage 3: use it or remove the key");
  TESSERA_VALIDATE(!config.quantized_gradients || config.shard_group_size == 0, ConfigError, source,
                   ": ", gradients, " is true and mics_shard_size is ", config.shard_group_size,
                   "; quantized gradients are reduced over all ranks: remove one of them");
  auto const* block = written(loco);
  if (block && !block->is_null()) {
    TESSERA_VALIDATE(config.quantized_gradients, ConfigError, source, ": ", loco, " without ",
                     gradients, ", whose errors it returns; set that to true or remove the block");
    config.error_feedback = feedback_of(*block, source);
    config.origins["error_feedback"] = Origin::deepspeed;
  }
  if (config.quantized_weights) config.origins["quantized_weights"] = Origin::deepspeed;
  if (config.quantized_gradients) config.origins["quantized_gradients"] = Origin::deepspeed;
}

}  // namespace tessera::config::detail

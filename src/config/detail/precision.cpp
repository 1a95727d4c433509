#include "detail/resolvers.hpp"

#include <cmath>
#include <tuple>
#include <utility>

#include "tessera/config/option_table.hpp"
#include "tessera/core/error.hpp"

namespace tessera::config::detail {
namespace {

class Precision {
 public:
  Precision(PrecisionInputs const& from, ResolvedConfig& out) : from_(from), out_(out) {}

  void resolve() {
    resolve_dtypes();
    resolve_autocast();
    resolve_evaluation();
    resolve_fp8();
    resolve_master_weights();
    resolve_half_masters();
    resolve_wire();
    resolve_loss_scale();
    resolve_averaging();
  }

 private:
  std::string const& source() const { return from_.args.deepspeed.source; }
  ConfigTree const& value(std::string const& key) const { return from_.args.deepspeed.value(key); }
  bool written(std::string const& key) const { return from_.args.deepspeed.find(key) != nullptr; }
  bool is_on(std::string const& key) const { return written(key) && value(key).as_bool(); }
  void take(char const* field, std::string const& key, auto& value) {
    detail::take(from_.args.deepspeed, key, out_, field, value);
  }
  Origin origin_of(Dtype dtype) const {
    std::string const name(name_of(dtype));
    return written(name + ".enabled") ? Origin::deepspeed : from_.args.values.origin(name);
  }

  void resolve_dtypes();
  void resolve_autocast();
  void autocast(Dtype dtype, Origin origin);
  void resolve_evaluation();
  void resolve_fp8();
  void resolve_master_weights();
  void resolve_half_masters();
  void resolve_half_states(bool is_half);
  void resolve_wire();
  void resolve_loss_scale();
  void take_deepspeed_scale();
  void resolve_averaging();

  PrecisionInputs const& from_;
  ResolvedConfig& out_;
};

void Precision::resolve_dtypes() {
  auto const& args = from_.args;
  auto const switch_of = [&](char const* name) {
    return written(concat(name, ".enabled")) ? concat(name, ".enabled") : concat("--", name);
  };
  TESSERA_VALIDATE(!(from_.fp16 && from_.bf16), ConfigError, source(), ": ", switch_of("fp16"),
                   " and ", switch_of("bf16"),
                   " are both true; a run has one working precision, "
                   "set one of them to false");
  if (from_.fp16 || from_.bf16) {
    out_.dtype = from_.fp16 ? Dtype::fp16 : Dtype::bf16;
    out_.origins["dtype"] = origin_of(out_.dtype);
  } else if (!args.dtype.empty() && args.dtype != "auto") {
    out_.dtype = dtype_from_name(args.dtype);
    out_.origins["dtype"] = args.values.origin("dtype");
  }
  out_.product_dtype = out_.dtype;
  if (auto const origin = out_.origins.find("dtype"); origin != out_.origins.end())
    out_.origins["product_dtype"] = origin->second;
}

void Precision::autocast(Dtype dtype, Origin origin) {
  out_.dtype = Dtype::fp32;
  out_.product_dtype = dtype;
  out_.origins["dtype"] = out_.origins["product_dtype"] = origin;
}

/// Flags without DeepSpeed and FSDP mean torch.autocast, as in the Trainer. With them, and with a
/// model loaded in that dtype, they cast the model; DeepSpeed's torch_autocast block does not.
/// apex's O1 is autocast, its O2 the cast model.
void Precision::resolve_autocast() {
  auto const& args = from_.args;
  bool const casts =
      out_.has_deepspeed || out_.stage > 0 ||
      (!args.dtype.empty() && args.dtype != "auto" && dtype_from_name(args.dtype) == out_.dtype);
  if ((args.fp16 || args.bf16) && !casts) autocast(out_.dtype, out_.origins["dtype"]);
  bool const amp = is_on("amp.enabled");
  if (!is_on("torch_autocast.enabled") && !amp) return;
  std::string const block = amp ? "amp" : "torch_autocast";
  TESSERA_VALIDATE(!from_.fp16 && !from_.bf16, ConfigError, source(), ": ", block,
                   ".enabled is true, and so is ", from_.fp16 ? "fp16" : "bf16",
                   "; a run has one working precision, set one of them to false");
  if (!amp) {
    std::string const name =
        written("torch_autocast.dtype") ? value("torch_autocast.dtype").as_string() : "bfloat16";
    return autocast(dtype_from_name(name), Origin::deepspeed);
  }
  TESSERA_VALIDATE(out_.stage == 0, ConfigError, source(), ": amp.enabled is true at stage ",
                   out_.stage, ", which apex does not know; use the fp16 or torch_autocast block");
  std::string const level = written("amp.opt_level") ? value("amp.opt_level").as_string() : "O1";
  out_.notes.push_back(concat("amp: opt_level ", level, " is read as ",
                              level == "O0"   ? "fp32"
                              : level == "O1" ? "autocast in fp16"
                                              : "fp16 weights with fp32 master weights"));
  if (level == "O1") autocast(Dtype::fp16, Origin::deepspeed);
  if (level == "O2") out_.dtype = out_.product_dtype = Dtype::fp16;
  if (level != "O1") out_.origins["dtype"] = Origin::deepspeed;
}

/// The Trainer casts the model for evaluations outside of training.
void Precision::resolve_evaluation() {
  auto const& args = from_.args;
  for (auto const& [dtype, given] :
       {std::pair{Dtype::fp16, args.fp16_full_eval}, {Dtype::bf16, args.bf16_full_eval}}) {
    if (!given) continue;
    std::string const flag = concat(name_of(dtype), "_full_eval");
    TESSERA_VALIDATE(!args.do_train || out_.product_dtype == dtype, UsageError, "--", flag,
                     " but the training precision is ", name_of(out_.product_dtype),
                     ", which the evaluations of a training run use; give --", name_of(dtype),
                     " too, or evaluate in a run without --do_train");
    if (args.do_train) continue;
    out_.dtype = out_.product_dtype = dtype;
    out_.origins["dtype"] = out_.origins["product_dtype"] = args.values.origin(flag);
  }
}

/// The products of blocks; all others, and the activations between them, stay bf16, which holds
/// every fp8 number exactly.
void Precision::resolve_fp8() {
  auto const& args = from_.args;
  if (!args.fp8) return;
  TESSERA_VALIDATE(out_.product_dtype == Dtype::bf16, ConfigError, "--fp8 true with products in ",
                   name_of(out_.product_dtype),
                   ": fp8 products are part of bf16 training; give --bf16 too, or leave fp8 out");
  out_.fp8 = true;
  out_.origins["fp8"] = args.values.origin("fp8");
}

/// DeepSpeed copies its master weights from the model after its cast.
void Precision::resolve_master_weights() {
  auto const& args = from_.args;
  bool const automatic = args.master_weights == "auto";
  out_.round_master_weights = out_.dtype != Dtype::fp32 &&
                              (automatic ? out_.has_deepspeed : args.master_weights == "rounded");
  out_.origins["round_master_weights"] =
      automatic ? Origin::derived : args.values.origin("master_weights");
}

/// DeepSpeed also demands CPU offload and its CPU Adam, except for bf16 states; here no kernel
/// does.
void Precision::resolve_half_masters() {
  for (Dtype const dtype : {Dtype::fp16, Dtype::bf16}) {
    std::string const name(name_of(dtype));
    std::string const key = concat(name, ".", name, "_master_weights_and_grads");
    if (!is_on(key)) continue;
    TESSERA_VALIDATE(out_.dtype == dtype, ConfigError, source(), ": ", key,
                     " is true but the weights are ", name_of(out_.dtype), "; set ", name,
                     ".enabled to true, or remove the key");
    TESSERA_VALIDATE(out_.stage > 0, ConfigError, source(), ": ", key,
                     " is true at stage 0; DeepSpeed knows it at zero_optimization.stage 1, 2 and "
                     "3; use one of them, or remove the key");
    out_.master_dtype = dtype;
    out_.origins["master_dtype"] = Origin::deepspeed;
  }
  resolve_half_states(out_.master_dtype != Dtype::fp32);
}

void Precision::resolve_half_states(bool is_half) {
  std::string const key = "optimizer.params.fp32_optimizer_states";
  bool const bf16_states = is_on("bf16.bf16_optimizer_states");
  TESSERA_VALIDATE(!bf16_states || out_.master_dtype == Dtype::bf16, ConfigError, source(),
                   ": bf16.bf16_optimizer_states is true but bf16.bf16_master_weights_and_grads is "
                   "not; set both to true, or remove the key");
  if (bf16_states && is_on(key))
    out_.notes.push_back(concat(key,
                                ": true, but bf16.bf16_optimizer_states keeps the states in "
                                "bf16, as in DeepSpeed"));
  bool const follows = written(key) && !value(key).as_bool();
  if (!bf16_states && !follows) return;
  if (is_half)
    out_.state_dtype = out_.master_dtype;
  else
    out_.notes.push_back(concat(key,
                                ": false, but the states stay fp32, because the master "
                                "weights are; set bf16.bf16_master_weights_and_grads or "
                                "fp16.fp16_master_weights_and_grads"));
  out_.origins["state_dtype"] = Origin::deepspeed;
}

void Precision::resolve_wire() {
  out_.communication_dtype = out_.dtype;
  out_.accumulation_dtype = out_.master_dtype;
  for (auto const& [field, key, dtype] :
       {std::tuple{"communication_dtype", "communication_data_type", &out_.communication_dtype},
        {"accumulation_dtype", "data_types.grad_accum_dtype", &out_.accumulation_dtype}}) {
    if (!written(key)) continue;
    *dtype = dtype_from_name(value(key).as_string());
    out_.origins[field] = Origin::deepspeed;
  }
}

void Precision::resolve_loss_scale() {
  if (out_.dtype == Dtype::bf16)
    take("skip_on_nonfinite", "bf16.check_grad_overflow", out_.skip_on_nonfinite);
  if (out_.product_dtype != Dtype::fp16) return;
  bool const casts = out_.dtype == Dtype::fp16;
  if (out_.has_deepspeed && casts) return take_deepspeed_scale();
  // the defaults of torch.amp.GradScaler
  out_.dynamic_loss_scale = true;
  out_.loss_scale_window = 2000;
  out_.hysteresis = 1;
  out_.min_loss_scale = std::ldexp(1.0, -24);
  out_.loss_scale_growth = optim::ScaleGrowth::torch;
}

void Precision::take_deepspeed_scale() {
  double fixed = 0.0;
  take("static_loss_scale", "fp16.loss_scale", fixed);
  out_.dynamic_loss_scale = fixed == 0.0;
  out_.static_loss_scale = fixed == 0.0 ? 1.0 : fixed;
  take("initial_scale_power", "fp16.initial_scale_power", out_.initial_scale_power);
  take("loss_scale_window", "fp16.loss_scale_window", out_.loss_scale_window);
  take("hysteresis", "fp16.hysteresis", out_.hysteresis);
  take("consecutive_hysteresis", "fp16.consecutive_hysteresis", out_.consecutive_hysteresis);
  take("min_loss_scale", "fp16.min_loss_scale", out_.min_loss_scale);
  if (!out_.dynamic_loss_scale) return;
  TESSERA_VALIDATE(
      out_.min_loss_scale <= std::ldexp(1.0, static_cast<int>(out_.initial_scale_power)),
      ConfigError, source(), ": fp16.min_loss_scale ", out_.min_loss_scale,
      " is above the first scale, 2^", out_.initial_scale_power,
      "; lower it or raise fp16.initial_scale_power");
  if (out_.stage == 0 && out_.hysteresis > 1 && written("fp16.hysteresis"))
    out_.notes.push_back(
        "fp16.hysteresis: no effect at stage 0, where every overflow halves the loss scale, as in "
        "DeepSpeed");
}

void Precision::resolve_averaging() {
  take("prescale_gradients", "prescale_gradients", out_.prescale_gradients);
  take("gradient_predivide_factor", "gradient_predivide_factor", out_.gradient_predivide_factor);
  take("gradient_allreduce_op", "gradient_allreduce_op", out_.gradient_allreduce_op);
  take("reduce_scatter", "zero_optimization.reduce_scatter", out_.reduce_scatter);
}

}  // namespace

void resolve_precision(PrecisionInputs const& from, ResolvedConfig& out) {
  Precision(from, out).resolve();
}

}  // namespace tessera::config::detail

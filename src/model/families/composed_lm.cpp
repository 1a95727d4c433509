#include "tessera/model/families/composed_lm.hpp"

#include <algorithm>

#include "decoder/assemble.hpp"
#include "families/fields.hpp"
#include "layers/planning.hpp"
#include "layers/tape.hpp"

namespace tessera::model {
namespace {

using detail::BackwardLeases;
using detail::DecoderLayer;
using detail::LayerFrame;
using detail::PassContext;
using memory::ConstTensorView;
using memory::TensorView;
using memory::WeightLease;

/// A layer of one's own, its tape being what it saves.
class TapedLayer final : public DecoderLayer {
 public:
  struct Place {
    int layer;
    std::int64_t width;
    std::string name;
  };

  TapedLayer(std::unique_ptr<Layer> layer, Place place, std::vector<std::string> parameters)
      : layer_(std::move(layer)), place_(std::move(place)), parameters_(std::move(parameters)) {}

  detail::SharedActivations share(PassContext const& /*pass*/) const override {
    throw ConfigError(concat("layer ", place_.name,
                             " is one of your own, which light recomputation does not know; use "
                             "--recompute block or none"));
  }
  std::unique_ptr<Saved> forward(PassContext const& pass, WeightLease const& weights,
                                 TensorView out, ConstTensorView in) const override {
    auto saved = run(pass, weights, in);
    kernels::cast(pass.compute, out, saved->out.rows());
    return saved;
  }
  std::unique_ptr<Saved> recompute(PassContext const& pass, WeightLease const& weights,
                                   TensorView /*scratch*/, ConstTensorView in) const override {
    return run(pass, weights, in);
  }
  void backward(PassContext const& pass, BackwardLeases const& leases, TensorView stream,
                ConstTensorView /*in*/, Saved const& saved) const override {
    auto const& of = static_cast<Taped const&>(saved);
    detail::TapeBackward run(pass, leases, of.tape);
    run.run(of.tape, of.in, of.out, stream);
    std::size_t const unused = run.first_unwritten();
    TESSERA_VALIDATE(unused == parameters_.size(), ConfigError, "parameter ", parameters_[unused],
                     " has no part in the result of its layer, so that it gets no gradient; use "
                     "it, freeze it (--frozen_parameters) or leave it out");
  }

 private:
  struct Taped final : Saved {
    detail::Tape tape;
    Value in, out;
  };

  std::unique_ptr<Taped> run(PassContext const& pass, WeightLease const& weights,
                             ConstTensorView in) const {
    auto saved = std::make_unique<Taped>();
    saved->in = saved->tape.add(in);
    LayerFrame frame{pass, weights, saved->tape, place_.layer, place_.name};
    LayerPass layer_pass(frame);
    saved->out = layer_->forward(layer_pass, saved->in);
    ConstTensorView const rows = saved->out.rows();
    TESSERA_VALIDATE(rows.rank() == 2 && rows.dim(0) == in.dim(0) && rows.dim(1) == place_.width,
                     ConfigError, "layer ", place_.name, " returns ",
                     rows.rank() == 2 ? concat(rows.dim(0), " rows of ", rows.dim(1)) : "nothing",
                     "; it must return ", in.dim(0), " rows of ", place_.width,
                     ", as it has got them");
    return saved;
  }

  std::unique_ptr<Layer> layer_;
  Place place_;
  std::vector<std::string> parameters_;
};

void check(ComposedOptions const& o) {
  auto const* const type = o.config.is_object() ? o.config.find("model_type") : nullptr;
  TESSERA_VALIDATE(type && type->is_string() && !type->as_string().empty(), ConfigError,
                   "the configuration of a composed model has no model_type; give it a name");
  for (auto const& [name, value] :
       {std::pair("width", o.width), {"vocabulary", o.vocabulary}, {"positions", o.positions}})
    TESSERA_VALIDATE(value >= 1, ConfigError, name, " of the composed model ", type->as_string(),
                     " is ", value, "; it must be at least 1");
  for (auto const& [name, value] : {std::pair("token_embedding", o.token_embedding),
                                    {"final_norm", o.final_norm},
                                    {"head", o.head}})
    TESSERA_VALIDATE(!value.empty(), ConfigError, name, " of the composed model ",
                     type->as_string(), " is empty; it names a parameter");
}

detail::DecoderDescription describe(ComposedOptions const& o) {
  detail::DecoderDescription out;
  out.names.final_norm = o.final_norm;
  out.names.head = o.head;
  out.embedding = {.token_name = o.token_embedding,
                   .position_name = o.position_embedding,
                   .token_aliases = {},
                   .vocabulary = o.vocabulary,
                   .positions = o.positions,
                   .width = o.width,
                   .stddev = o.stddev,
                   .dropout = o.embedding_dropout};
  out.norm = {.width = o.width, .epsilon = o.norm_epsilon, .kind = o.norm};
  out.rotary = o.rotary;
  out.tied = o.tied;
  out.head_stddev = o.stddev;
  out.positions_field = "positions";
  return out;
}

void check_names(std::vector<memory::UnitSpec> const& units) {
  std::vector<std::string> names;
  for (auto const& unit : units)
    for (auto const& parameter : unit.parameters) names.push_back(parameter.name);
  std::sort(names.begin(), names.end());
  auto const twice = std::adjacent_find(names.begin(), names.end());
  TESSERA_VALIDATE(twice == names.end(), ConfigError, "two parameters are called ", *twice,
                   "; give layers and their parts different names");
}

}  // namespace

struct ComposedLm::Parts {
  ComposedOptions options;
  detail::DecoderLayers layers{};
  detail::AttentionParts attention{};
};

ComposedLm::ComposedLm(ComposedOptions options)
    : parts_(std::make_unique<Parts>(Parts{std::move(options)})) {
  check(parts_->options);
}
ComposedLm::~ComposedLm() = default;
ComposedLm::ComposedLm(ComposedLm&&) noexcept = default;
ComposedLm& ComposedLm::operator=(ComposedLm&&) noexcept = default;

ComposedLm& ComposedLm::append(std::string const& name,
                               std::function<std::unique_ptr<Layer>(Parameters&)> const& make) {
  TESSERA_VALIDATE(!name.empty(), ConfigError, "a layer of a composed model has no name");
  auto& [units, layers, cached, kv_heads, head_dim] = parts_->layers;
  units.push_back({.name = concat("block.", layers.size()), .parameters = {}});
  detail::LayerPlan plan{units.back(), name, parts_->options.rotary, parts_->attention};
  Parameters parameters(plan);
  auto layer = make(parameters);
  std::vector<std::string> names;
  for (auto const& parameter : units.back().parameters) names.push_back(parameter.name);
  TESSERA_VALIDATE(!names.empty(), ConfigError, "layer ", name,
                   " has no parameters; make its operations part of the next layer");
  layers.push_back(std::make_unique<TapedLayer>(
      std::move(layer),
      TapedLayer::Place{static_cast<int>(layers.size()), parts_->options.width, name},
      std::move(names)));
  return *this;
}

std::unique_ptr<CausalLm> ComposedLm::build(ModelOptions const& options) && {
  auto& [composed, layers, attention] = *parts_;
  TESSERA_VALIDATE(!options.lora, ConfigError,
                   "adapters are for the library's families, not for the composed model ",
                   composed.config.at("model_type").as_string(),
                   "; leave use_peft_lora out, or freeze parameters (--frozen_parameters)");
  if (attention.equal) {
    layers.cached_layers = attention.count;
    layers.kv_heads = attention.kv_heads;
    layers.head_dim = attention.head_dim;
  }
  auto description = describe(composed);
  detail::apply_options(description, options);
  detail::write_options(composed.config, options, "");
  auto out = detail::make_decoder(composed.config.at("model_type").as_string(), description,
                                  std::move(layers), composed.config,
                                  {options.dtype, options.product_dtype, options.fp8});
  check_names(out->units());
  (void)out->activation_bytes(
      {memory::Pass::training, 1, std::min<std::int64_t>(2, out->max_positions())},
      memory::MemorySpace::host);
  return out;
}

}  // namespace tessera::model

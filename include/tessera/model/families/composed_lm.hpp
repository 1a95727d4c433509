#pragma once
/// Language models of one's own: the library's embedding and head around layers of one's own.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/config_tree.hpp"
#include "tessera/kernels/attention/rotary_tables.hpp"
#include "tessera/model/decoder/causal_lm.hpp"
#include "tessera/model/families/registry.hpp"
#include "tessera/model/layers/layers.hpp"

namespace tessera::model {

/// One unit of a model between its embedding and its head. Every parameter that it declares must
/// take part in its forward pass.
class Layer {
 public:
  virtual ~Layer() = default;
  /// @param in the residual stream, [batch * sequence, width] @return the same for the next layer
  /// @pre it enqueues the same operations for every batch: it must not branch on data
  virtual Value forward(LayerPass& pass, Value const& in) const = 0;
};

/// Embedding and head. Parameter names are those of files.
struct ComposedOptions {
  /// config.json of the model: checkpoints and exports have it. Needs "model_type".
  ConfigTree config;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  ///< the most tokens in a row
  std::string token_embedding = "embed_tokens.weight";
  std::string position_embedding{};                ///< empty: no learned positions
  std::optional<kernels::RotaryOptions> rotary{};  ///< rotates queries and keys of Attention
  double embedding_dropout = 0.0;
  double stddev = 0.02;  ///< initial weights of embedding and head
  std::string final_norm = "norm";
  NormKind norm = NormKind::rms;
  double norm_epsilon = 1e-5;
  std::string head = "lm_head.weight";
  bool tied = true;  ///< the head has the weights of the token embedding
};

/// Builds a model of embedding, layers and head.
class ComposedLm {
 public:
  /// @throws ConfigError naming an option that is missing or out of range
  explicit ComposedLm(ComposedOptions options);
  ~ComposedLm();
  ComposedLm(ComposedLm&&) noexcept;
  ComposedLm& operator=(ComposedLm&&) noexcept;

  /// Appends a layer: OwnLayer(Parameters&, more...) declares its parameters below "<name>.".
  template <class OwnLayer, class... More>
  ComposedLm& add_layer(std::string const& name, More&&... more) {
    return append(name, [&](Parameters& parameters) {
      return std::make_unique<OwnLayer>(parameters, std::forward<More>(more)...);
    });
  }

  /// Plans a pass of one row, so that layers whose sizes do not fit are refused here.
  /// @throws ConfigError for options and layers that contradict each other
  std::unique_ptr<CausalLm> build(ModelOptions const& options) &&;

 private:
  struct Parts;
  ComposedLm& append(std::string const& name,
                     std::function<std::unique_ptr<Layer>(Parameters&)> const& make);

  std::unique_ptr<Parts> parts_;
};

}  // namespace tessera::model

#include "decoder/decoder.hpp"

#include <algorithm>
#include <cmath>

#include "layers/planning.hpp"
#include "tessera/memory/planning.hpp"

namespace tessera::model::detail {
namespace {

/// Weights of the head: those of its own unit and the projection, which a tied head takes from the
/// embedding.
struct HeadWeights {
  WeightLease own;
  WeightLease embedding;
  LmHead::Projection projection{};  ///< without gradients
};

HeadWeights acquire_head(UnitIndex unit, LmHead const& head, Embedding const& embedding,
                         PassContext const& pass, memory::WeightProvider& params) {
  HeadWeights out;
  out.own = params.acquire(unit, pass.compute);
  if (head.projection()) {
    out.projection.weight = pass.copy_or_weight(out.own, *head.projection());
  } else {
    out.embedding = params.acquire(memory::first_unit, pass.compute);
    out.projection.weight = pass.copy_or_weight(out.embedding, embedding.token_weights());
  }
  if (head.bias()) out.projection.bias = pass.copy_or_weight(out.own, *head.bias());
  return out;
}

/// Copies a tensor to host memory and waits for the queue.
std::vector<float> read_back(Queue& compute, TensorView from, std::string_view what) {
  std::vector<float> out(static_cast<std::size_t>(from.numel()));
  memory::copy(compute, out.data(), from.as<float>(), from.bytes());
  compute.record().wait(what, queue_deadline);
  return out;
}

/// The factors of a loss of rows, from what the head has measured. None of a pass that is planned.
std::function<std::vector<float>()> factors_of(Queue& compute, Batch const& batch,
                                               LmHead::Output const& measured) {
  if (!batch.row_loss) return {};
  return [&compute, &batch, measured] {
    auto const values = [&](TensorView from) {
      return from.empty() ? std::vector<float>()
                          : read_back(compute, from, "the token losses of a micro-batch");
    };
    return batch.row_loss->weigh({values(measured.losses), values(measured.hits),
                                  values(measured.entropy), values(measured.means)});
  };
}

class DecoderCache final : public KeyValueCache {
 public:
  DecoderCache(DecoderParts const& parts, std::int64_t rows, std::int64_t positions,
               Queue const& compute)
      : dtype_(parts.product_dtype),
        rows_(rows),
        positions_(positions),
        heads_(parts.kv_heads),
        head_dim_(parts.head_dim),
        layers_(parts.cached_layers),
        buffer_("key/value cache", memory::Purpose::activations,
                2 * static_cast<std::size_t>(layers_ * rows * heads_ * positions * head_dim_) *
                    size_of(parts.product_dtype),
                memory::memory_space_of(compute)) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t positions() const override { return positions_; }
  std::size_t bytes() const override { return buffer_.bytes(); }

  /// Keys and values of a pass; the positions are its own.
  CachedRows rows_of_pass() const {
    auto const half = [&](std::size_t at) {
      return buffer_.view(dtype_, {layers_ * rows_, heads_, positions_, head_dim_}, at);
    };
    CachedRows out;
    out.keys = half(0);
    out.values = half(buffer_.bytes() / 2);
    return out;
  }

 private:
  Dtype dtype_;
  std::int64_t rows_, positions_, heads_, head_dim_, layers_;
  memory::Buffer buffer_;
};

/// Tokens, their positions, and the first position and length of each row, in one list.
std::vector<std::int32_t> inputs_of(DecodeBatch const& batch) {
  std::vector<std::int32_t> out(batch.tokens, batch.tokens + batch.rows * batch.queries);
  for (std::int64_t row = 0; row < batch.rows; ++row)
    for (std::int64_t i = 0; i < batch.queries; ++i)
      out.push_back(batch.first[row] + static_cast<std::int32_t>(i));
  out.insert(out.end(), batch.first, batch.first + batch.rows);
  for (std::int64_t row = 0; row < batch.rows; ++row)
    out.push_back(batch.first[row] + static_cast<std::int32_t>(batch.queries));
  return out;
}

}  // namespace

Decoder::Decoder(DecoderParts parts) : parts_(std::move(parts)) {
  kept_.reserve(parts_.layers.size());
}

Decoder::PassBuffers& Decoder::buffers_for(Queue const& compute) {
  auto const space = memory::memory_space_of(compute);
  auto& place = space == memory::MemorySpace::device ? on_device_ : on_host_;
  if (!place) place.emplace(make_buffers(parts_.family + " activations", space));
  return *place;
}

Decoder::PassBuffers Decoder::make_buffers(std::string const& name,
                                           memory::MemorySpace space) const {
  PassBuffers out{Arena(name, memory::Purpose::activations, space), {}, {}, {}, {}, {}};
  if (parts_.rotary) out.rotary.emplace(*parts_.rotary);
  return out;
}

std::vector<UnitIndex> Decoder::acquisitions(memory::Pass kind) const {
  std::vector<UnitIndex> order;
  std::size_t const blocks = parts_.layers.size();
  order.push_back(embedding_unit);
  for (std::size_t i = 0; i < blocks; ++i) order.push_back(unit_of_block(i));
  order.push_back(head_unit());
  if (tied()) order.push_back(embedding_unit);
  if (kind == memory::Pass::training)
    for (std::size_t i = blocks; i-- > 0 && unit_of_block(i) >= first_trained();)
      order.push_back(unit_of_block(i));
  return order;
}

bool Decoder::token_weights_train() const {
  return parts_.units[position(embedding_unit)].parameters[parts_.embedding.token_weights()].trains;
}

UnitIndex Decoder::first_trained() const {
  for (UnitIndex u = embedding_unit; u < head_unit(); ++u)
    for (auto const& parameter : parts_.units[position(u)].parameters)
      if (parameter.trains) return u;
  return head_unit();
}

HostCheckpoints::Blocks Decoder::trained_blocks() const {
  std::size_t const first = std::max<std::size_t>(position(first_trained()), 1) - 1;
  return {std::min(first, parts_.layers.size()), parts_.layers.size(), parts_.width};
}

bool Decoder::measures_tokens(Batch const& batch) const {
  return !has_own_head() && batch.metrics != nullptr;
}

/// Positions that a row needs: those of its longest document where they count from 0 in each.
std::int64_t Decoder::longest_document(Batch const& batch) const {
  if (!batch.documents || !parts_.documents.reset_position_ids) return batch.sequence;
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < batch.rows * batch.sequence; ++i)
    longest = std::max(longest, i % batch.sequence - batch.documents[i] + 1);
  return longest;
}

void Decoder::check(Batch const& batch) const {
  TESSERA_VALIDATE(batch.rows >= 1 && batch.sequence >= 1, ConfigError, "a batch of ", batch.rows,
                   " rows of ", batch.sequence, " tokens: both must be at least 1");
  std::int64_t const longest = longest_document(batch);
  TESSERA_VALIDATE(longest <= parts_.positions, ConfigError, "rows of ", longest,
                   " tokens, but the model has positions for ", parts_.positions,
                   "; use a block_size of at most ", parts_.positions,
                   " or train a model with a larger ", parts_.positions_field, " from scratch");
  TESSERA_VALIDATE(!has_own_head() || batch.loss, ConfigError, "the outputs of the head ",
                   parts_.head_name,
                   " are no tokens, so that they need a loss of one's own; override compute_loss "
                   "and prediction_step");
  check_tokens(batch.tokens, batch.rows, batch.sequence);
}

ParameterChanges Decoder::parameter_changes() const {
  if (!has_own_head()) return {};
  return {{parts_.head_name}, {parts_.replaced_head}};
}

void Decoder::check_tokens(std::int32_t const* tokens, std::int64_t rows,
                           std::int64_t sequence) const {
  for (std::int64_t i = 0; i < rows * sequence; ++i)
    TESSERA_VALIDATE(tokens[i] >= 0 && tokens[i] < vocabulary_size(), DataError, "token ",
                     tokens[i], " in row ", i / sequence, " at position ", i % sequence,
                     " is outside of the vocabulary of ", vocabulary_size(),
                     " tokens; use the tokenizer that belongs to the model, or a config with the "
                     "tokenizer's vocab_size");
}

PassContext Decoder::begin(Batch const& batch, PassBuffers& place, Queue& compute) const {
  PassContext pass{.compute = compute,
                   .arena = place.arena,
                   .dtype = parts_.product_dtype,
                   .batch = batch.rows,
                   .sequence = batch.sequence,
                   .adapters_on = batch.use_adapters,
                   .stream_dtype = parts_.dtype};
  if (place.rotary)
    pass.rotary = batch.tokens ? place.rotary->stage(pass, pass.sequence, Staging::real,
                                                     longest_document(batch))
                               : place.rotary->stage(pass, pass.sequence, Staging::planned);
  return pass;
}

Inputs Decoder::stage(PassContext& pass, PassBuffers& place, Batch const& batch,
                      PassKind kind) const {
  Inputs const inputs = place.inputs.stage(pass, batch, kind, parts_.documents);
  pass.documents = inputs.documents;
  pass.position_ids = inputs.positions;
  pass.dropout_place = inputs.dropout_place;
  return inputs;
}

LossSum Decoder::train(Batch const& batch, PassSettings const& settings,
                       memory::ParamProvider& params, Queue& compute) {
  check(batch);
  return train_in(buffers_for(compute), batch, settings, params, compute);
}

LossSum Decoder::train_in(PassBuffers& place, Batch const& batch, PassSettings const& settings,
                          memory::ParamProvider& params, Queue& compute) {
  ArenaScope const scope(place.arena);
  PassContext pass = begin(batch, place, compute);
  pass.dropout_on = settings.dropout;
  pass.fp8 = parts_.fp8;
  pass.float8_scales = &place.float8_scales;
  pass.recompute = settings.recompute;
  if (pass.recompute == Recompute::block && settings.cpu_checkpointing &&
      memory::memory_space_of(compute) == memory::MemorySpace::device)
    pass.checkpoints = &place.checkpoints;
  pass.dropout_seed = settings.dropout_seed;
  pass.step = settings.step;
  if (pass.recompute == Recompute::light && !parts_.layers.empty())
    pass.shared = parts_.layers.front()->share(pass);
  params.begin_pass(memory::Pass::training, acquisitions(memory::Pass::training));
  bool const measures = measures_tokens(batch);
  Inputs const inputs = stage(pass, place, batch, PassKind::training);
  auto const by_position = [&](bool wanted) {
    return wanted ? pass.allocate_fp32(pass.positions()) : TensorView{};
  };
  LmHead::Output const measured{.losses = by_position(true),
                                .hits = by_position(measures),
                                .entropy = by_position(measures),
                                .means = by_position(measures)};
  TensorView const stream =
      pass.allocate_stream(pass.positions(), parts_.width);  // gradient of the residual stream
  TensorView const hidden = forward_keeping(pass, settings, inputs, params);
  if (settings.between_layers) settings.between_layers();
  LmHead::Output to = measured;
  to.dhidden = stream;
  train_head(pass, settings.gradient_scale, to,
             {hidden, inputs.targets, inputs.loss, factors_of(compute, batch, measured)}, params);
  if (measures) place.losses.sum(compute, measured.hits, measured.entropy, batch.metrics);
  backward_blocks(pass, settings, stream, params);
  backward_embedding(pass, inputs, stream, params);
  return loss_of(place, batch, measured.losses, compute);
}

LossSum Decoder::loss_of(PassBuffers& place, Batch const& batch, ConstTensorView losses,
                         Queue& compute) const {
  if (!batch.row_loss) return place.losses.sum(compute, losses);
  return {std::make_shared<double const>(batch.row_loss->loss()), compute.record()};
}

TensorView Decoder::forward_keeping(PassContext const& pass, PassSettings const& settings,
                                    Inputs const& inputs, memory::ParamProvider& params) {
  kept_.clear();
  bool const recomputes_blocks = pass.recompute == Recompute::block;
  PendingSum pending;
  PassContext pass_with_sums = pass;
  pass_with_sums.pending = &pending;
  if (pass.checkpoints) pass.checkpoints->begin(pass, trained_blocks());
  auto const input_of = [&](std::size_t block) {
    return pass.checkpoints ? pass.checkpoints->input_buffer(pass, block)
                            : pass.allocate_stream(pass.positions(), parts_.width);
  };
  TensorView hidden = input_of(0);
  parts_.embedding.forward(pass, params.acquire(embedding_unit, pass.compute), hidden,
                           inputs.tokens);
  for (std::size_t i = 0; i < parts_.layers.size(); ++i) {
    if (settings.between_layers) settings.between_layers();
    if (pass.checkpoints) pass.checkpoints->leave(pass, i);
    kept_.push_back({.in = hidden, .saved = {}, .mark = pass.arena.mark()});
    TensorView const out = input_of(i + 1);
    Arena::Mark const after_out = pass.arena.mark();
    // activations that do not stay cannot be operands of a later sum
    bool const keeps = !recomputes_blocks && unit_of_block(i) >= first_trained();
    bool const leaves_sum = keeps && parts_.layers[i]->sums_are_pending();
    auto const weights = params.acquire(unit_of_block(i), pass.compute);
    if (!leaves_sum) pending.compute(pass.compute);
    PendingSum const before = pending;
    pass.compute.run_as_graph(pass.shape("forward", i), [&] {
      pass.arena.rollback(after_out);  // a second call starts again
      pending = before;
      kept_.back().saved =
          parts_.layers[i]->forward(leaves_sum ? pass_with_sums : pass, weights, out, hidden);
    });
    pass.float8_scales->commit();
    if (!keeps) pass.arena.rollback(after_out);
    hidden = out;
  }
  pending.compute(pass.compute);
  return hidden;
}

void Decoder::train_head(PassContext const& pass, float gradient_scale, LmHead::Output const& to,
                         LmHead::Input const& from, memory::ParamProvider& params) const {
  HeadWeights const weights =
      acquire_head(head_unit(), parts_.head, parts_.embedding, pass, params);
  GradientLease const own = params.gradient(head_unit(), pass.compute);
  LmHead::Projection projection = weights.projection;
  if (!tied()) {
    projection.gradient = own[*parts_.head.projection()];
    projection.accumulate = own.accumulate();
  } else if (token_weights_train()) {
    GradientLease const owner = params.gradient(embedding_unit, pass.compute);
    if (!owner.accumulate()) parts_.embedding.clear_positions(pass, owner);
    projection.gradient = owner[parts_.embedding.token_weights()];
    projection.accumulate = owner.accumulate();
  }
  if (parts_.head.bias()) projection.bias_gradient = own[*parts_.head.bias()];
  parts_.head.train(pass, {weights.own, own}, projection, gradient_scale, to, from);
  params.gradient_complete(head_unit(), pass.compute);
}

void Decoder::backward_blocks(PassContext const& pass, PassSettings const& settings,
                              TensorView stream, memory::ParamProvider& params) {
  for (std::size_t i = parts_.layers.size(); i-- > 0 && unit_of_block(i) >= first_trained();) {
    if (settings.between_layers) settings.between_layers();
    if (pass.checkpoints) {
      if (i + 1 >= HostCheckpoints::slots)  // the block after this one was the last to use its slot
        pass.checkpoints->come_back(pass, i + 1 - HostCheckpoints::slots);
      pass.checkpoints->arrive(pass, i);
    }
    DecoderLayer const& layer = *parts_.layers[i];
    Kept& kept = kept_[i];
    UnitIndex const unit = unit_of_block(i);
    {
      auto const weights = params.acquire(unit, pass.compute);
      GradientLease const gradients = params.gradient(unit, pass.compute);
      Arena::Mark const before = pass.arena.mark();
      pass.compute.run_as_graph(
          pass.shape(gradients.accumulate() ? "backward, accumulating" : "backward", i), [&] {
            pass.arena.rollback(before);
            if (pass.recompute == Recompute::block)
              kept.saved = layer.recompute(
                  pass, weights, pass.allocate_stream(pass.positions(), parts_.width), kept.in);
            layer.backward(pass, {weights, gradients}, stream, kept.in, *kept.saved);
          });
      pass.float8_scales->commit();
    }
    params.gradient_complete(unit, pass.compute);
    pass.arena.rollback(kept.mark);
  }
}

void Decoder::backward_embedding(PassContext const& pass, Inputs const& inputs,
                                 ConstTensorView stream, memory::ParamProvider& params) const {
  if (first_trained() != embedding_unit) return;
  parts_.embedding.backward(pass, params.gradient(embedding_unit, pass.compute),
                            {stream, inputs.tokens, inputs.order, inputs.position_order});
  params.gradient_complete(embedding_unit, pass.compute);
}

TensorView Decoder::run_forward(PassContext const& pass, ConstTensorView tokens,
                                memory::WeightProvider& params) const {
  char const* const part = !pass.cache          ? "evaluation"
                           : pass.cache->begins ? "prompt"
                                                : "generation";
  params.begin_pass(memory::Pass::evaluation, acquisitions(memory::Pass::evaluation));
  TensorView hidden = pass.allocate_stream(pass.positions(), parts_.width),
             next = pass.allocate_stream(pass.positions(), parts_.width);
  parts_.embedding.forward(pass, params.acquire(embedding_unit, pass.compute), hidden, tokens);
  for (std::size_t i = 0; i < parts_.layers.size(); ++i) {
    ArenaScope const scope(pass.arena);
    auto const weights = params.acquire(unit_of_block(i), pass.compute);
    Arena::Mark const before = pass.arena.mark();
    pass.compute.run_as_graph(pass.shape(part, i), [&] {
      pass.arena.rollback(before);
      parts_.layers[i]->forward(pass, weights, next, hidden);
    });
    std::swap(hidden, next);
  }
  return hidden;
}

LossSum Decoder::evaluate(Batch const& batch, memory::WeightProvider& params, Queue& compute) {
  check(batch);
  return evaluate_in(buffers_for(compute), batch, params, compute);
}

LossSum Decoder::evaluate_in(PassBuffers& place, Batch const& batch, memory::WeightProvider& params,
                             Queue& compute) {
  ArenaScope const scope(place.arena);
  PassContext pass = begin(batch, place, compute);
  Inputs const inputs = stage(pass, place, batch, PassKind::forward);
  bool const measures = measures_tokens(batch);
  auto const by_position = [&](bool wanted) {
    return wanted ? pass.allocate_fp32(pass.positions()) : TensorView{};
  };
  LmHead::Output const measured{.losses = by_position(true),
                                .hits = by_position(measures || (batch.hits && !has_own_head())),
                                .entropy = by_position(measures),
                                .means = by_position(measures)};
  TensorView const hidden = run_forward(pass, inputs.tokens, params);
  {
    HeadWeights const weights =
        acquire_head(head_unit(), parts_.head, parts_.embedding, pass, params);
    parts_.head.losses(pass, weights.own, weights.projection, measured,
                       {hidden, inputs.targets, inputs.loss});
  }
  if (auto const weigh = factors_of(compute, batch, measured)) (void)weigh();
  if (measures) place.losses.sum(compute, measured.hits, measured.entropy, batch.metrics);
  if (batch.hits && !measured.hits.empty())
    *batch.hits = std::llround(place.losses.sum(compute, measured.hits).value());
  return loss_of(place, batch, measured.losses, compute);
}

std::unique_ptr<KeyValueCache> Decoder::make_cache(std::int64_t rows, std::int64_t positions,
                                                   Queue& compute) const {
  TESSERA_VALIDATE(!has_own_head(), ConfigError, "the outputs of the head ", parts_.head_name,
                   " are no tokens; generate with a model for the vocabulary");
  TESSERA_VALIDATE(parts_.cached_layers > 0, ConfigError, "the model ", parts_.family,
                   " generates no text: it has no Attention, or some with other keys and values "
                   "than the first; train and evaluate it only, or give all of them the same "
                   "kv_heads and head_dim");
  TESSERA_VALIDATE(positions <= parts_.positions, ConfigError, "a key/value cache of ", positions,
                   " positions, but the model has ", parts_.positions, " (", parts_.positions_field,
                   "); shorten the prompts, or generate fewer tokens");
  return std::make_unique<DecoderCache>(parts_, rows, positions, compute);
}

void Decoder::check(DecodeBatch const& batch, KeyValueCache const& cache) const {
  TESSERA_EXPECT(batch.rows == cache.rows() && batch.rows >= 1 && batch.queries >= 1);
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    TESSERA_EXPECT(batch.counts[row] >= 1 && batch.counts[row] <= batch.queries &&
                   batch.first[row] >= 0);
    TESSERA_VALIDATE(batch.first[row] + batch.queries <= cache.positions(), InternalError, "row ",
                     row, " needs ", batch.first[row] + batch.queries,
                     " positions of a key/value cache of ", cache.positions());
  }
  check_tokens(batch.tokens, batch.rows, batch.queries);
  std::int64_t const before = *std::max_element(batch.first, batch.first + batch.rows),
                     after = before + batch.queries;
  auto const& rotary = parts_.rotary;
  TESSERA_VALIDATE(!rotary || rotary->scaling != kernels::RotaryScaling::longrope || before == 0 ||
                       before > rotary->original_max_positions ||
                       after <= rotary->original_max_positions,
                   ConfigError, "generation from ", before, " to ", after,
                   " tokens with rope_type longrope: beyond original_max_position_embeddings (",
                   rotary->original_max_positions,
                   ") it rotates the keys in the cache otherwise; generate fewer tokens");
}

std::vector<float> Decoder::decode(DecodeBatch const& batch, KeyValueCache& cache,
                                   memory::WeightProvider& params, Queue& compute) {
  check(batch, cache);
  PassBuffers& place = buffers_for(compute);
  ArenaScope const scope(place.arena);
  std::int64_t const rows = batch.rows, tokens = rows * batch.queries;
  CachedRows cached = dynamic_cast<DecoderCache&>(cache).rows_of_pass();
  cached.longest = *std::max_element(batch.first, batch.first + rows) + batch.queries;
  cached.begins = cached.longest == batch.queries;
  PassContext pass{.compute = compute,
                   .arena = place.arena,
                   .dtype = parts_.product_dtype,
                   .batch = rows,
                   .sequence = batch.queries,
                   .cache = &cached,
                   .stream_dtype = parts_.dtype};
  if (place.rotary) pass.rotary = place.rotary->stage(pass, cached.longest, Staging::real);
  TensorView const staged = place.inputs.stage(pass, inputs_of(batch));
  cached.positions = staged.rows(tokens, tokens).reshape({rows, batch.queries});
  cached.first = staged.rows(2 * tokens, rows);
  cached.lengths = staged.rows(2 * tokens + rows, rows);
  TensorView const logits = pass.arena.allocate(Dtype::fp32, {rows, vocabulary_size()});
  TensorView const hidden =
      run_forward(pass, staged.rows(0, tokens).reshape({rows, batch.queries}), params);
  TensorView const last = last_of_rows(pass, batch, hidden);
  {
    HeadWeights const weights =
        acquire_head(head_unit(), parts_.head, parts_.embedding, pass, params);
    parts_.head.logits(pass, weights.own, weights.projection, logits, last);
  }
  return read_back(compute, logits, "the logits of the next token");
}

TensorView Decoder::last_of_rows(PassContext const& pass, DecodeBatch const& batch,
                                 TensorView hidden) const {
  if (batch.queries == 1) return hidden;
  TensorView const last = pass.allocate_stream(batch.rows, parts_.width);
  for (std::int64_t row = 0; row < batch.rows; ++row)
    kernels::cast(pass.compute, last.rows(row, 1),
                  hidden.rows(row * batch.queries + batch.counts[row] - 1, 1));
  return last;
}

void Decoder::decode_nothing(memory::WeightProvider& params, Queue& compute) {
  auto const order = acquisitions(memory::Pass::evaluation);
  params.begin_pass(memory::Pass::evaluation, order);
  for (UnitIndex const unit : order) (void)params.acquire(unit, compute);
}

std::size_t Decoder::activation_bytes(PlannedPass const& pass, memory::MemorySpace space) {
  memory::ArenaPlanning const planning;
  memory::PlanningQueue queue(space);
  PlanningParams own(parts_.units, parts_.dtype);
  PassBuffers place = make_buffers("planned", space);
  TokenMetrics metrics;
  Batch batch{nullptr, pass.rows, pass.sequence, 0};
  if (pass.measures_tokens) batch.metrics = &metrics;
  if (pass.kind == memory::Pass::evaluation)
    evaluate_in(place, batch, pass.weights ? *pass.weights : own, queue);
  else
    train_in(place, batch,
             {.recompute = pass.recompute, .cpu_checkpointing = pass.cpu_checkpointing},
             pass.params ? *pass.params : own, queue);
  return place.arena.peak();
}

std::size_t Decoder::host_checkpoint_bytes(PlannedPass const& pass) const {
  bool const leave = pass.kind == memory::Pass::training && pass.recompute == Recompute::block &&
                     pass.cpu_checkpointing;
  return leave ? HostCheckpoints::bytes(trained_blocks(), pass.rows * pass.sequence, parts_.dtype)
               : 0;
}

void Decoder::reserve_activations(std::size_t bytes, Queue& compute) {
  if (bytes == 0) return;
  Arena& arena = buffers_for(compute).arena;
  ArenaScope const scope(arena);
  (void)arena.allocate(Dtype::uint8, {static_cast<std::int64_t>(bytes)});
}

}  // namespace tessera::model::detail

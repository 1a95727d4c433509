#include "attention/attention_launch.hpp"

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>

#include "attention/attention_cudnn.hpp"
#include "attention/attention_decode_device.hpp"
#include "attention/document_mask.hpp"
#include "attention/mask_check.hpp"
#include "attention/mask_key.hpp"
#include "attention/sample_run.hpp"
#include "launch/launch.hpp"
#include "launch/timed.hpp"
#include "tessera/core/log.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/runtime.hpp"

namespace tessera::kernels::detail {
namespace {

/// In the log, which reason keeps cuDNN from computing, and what that costs.
void say_once(Dtype dtype, std::string const& refusal) {
  if (dtype != Dtype::fp32)
    return log::warning(concat("cuDNN does not compute attention of ", refusal,
                               "; the portable kernel computes it with fp32 products, which use no "
                               "tensor cores: its share of the step takes several times as long"));
  static std::mutex mutex;
  static std::set<std::string> said;
  std::lock_guard const lock(mutex);
  if (said.insert(refusal).second)
    log::info(concat("cuDNN does not compute attention of ", refusal,
                     "; the portable kernel computes it"));
}

struct SetMaskKey {
  std::int64_t* to;
  Dropout drop;
  KOKKOS_FUNCTION void operator()(std::int64_t) const {
    MaskKey const key = mask_key(drop);
    to[0] = key.seed;
    to[1] = key.offset;
  }
};

/// Seed and offset of the call's masks, set in stream order by a kernel: a kept graph that is
/// launched again sets those of its pass. Null without dropout.
std::int64_t* set_mask_key(Queue& q, Dropout const& drop) {
  if (drop.p <= 0.0f) return nullptr;
  std::int64_t* const to = cudnn_mask_key(q.native_stream());
  parallel_for(q, "tessera::kernels::attention_mask_key", 1, SetMaskKey{to, drop});
  return to;
}

/// Sets what the masks of a call need; nothing where the device has no room for it.
std::optional<CudnnMasks> set_masks(Queue& q, FlashCall const& call) {
  CudnnMasks masks{.key = set_mask_key(q, call.config.drop)};
  if (call.in.documents.empty()) return masks;
  auto const& shape = call.config.shape;
  masks.documents = cudnn_document_mask(q.native_stream(), document_mask_bytes(shape));
  if (!masks.documents) return std::nullopt;
  parallel_for(q, "tessera::kernels::attention_document_mask", SetDocumentMask::indices(shape),
               SetDocumentMask(call.config, call.in.documents, masks.documents));
  return masks;
}

CudnnDevice cudnn_device() {
  static int const major = memory::describe_device(memory::Runtime::device()).major;
  return {device_settings().deterministic, major};
}

/// compute(part, masks) for parts of the batch, so that long sequences need no workspace and no
/// mask of all rows together. False when it has been false for a part.
template <class Compute>
bool compute_parts(Queue& q, BackwardCall const& all, Compute const& compute) {
  auto const& config = all.call.config;
  bool const documents = !all.call.in.documents.empty();
  std::int64_t const batch = config.shape.batch,
                     rows = cudnn_backward_part(config, documents, cudnn_device()).shape.batch;
  for (std::int64_t first = 0; first < batch; first += rows) {
    auto const part = rows < batch ? part_of_batch(all, first, std::min(rows, batch - first)) : all;
    auto const masks = set_masks(q, part.call);
    if (!masks || !compute(part, *masks)) return false;
  }
  return true;
}

bool cudnn_forward(Queue& q, FlashCall const& call, AttentionOutput const& to) {
  auto const compute = [&](BackwardCall const& part, CudnnMasks const& masks) {
    return cudnn_attention(q, part.call, const_cast<void*>(part.saved.out.data()),
                           const_cast<float*>(part.saved.lse.as<float>()), masks);
  };
  BackwardCall const all{call, {}, {.dout = {}, .out = to.out, .lse = to.lse}};
  if (!call.in.documents.empty()) return compute_parts(q, all, compute);
  return compute(all, *set_masks(q, call));
}
bool cudnn_backward(Queue& q, FlashCall const& call, AttentionGradients const& to,
                    AttentionSaved const& saved) {
  auto const compute = [&](BackwardCall const& part, CudnnMasks const& masks) {
    return cudnn_attention_backward(q, part.call, part.to, part.saved, masks);
  };
  return compute_parts(q, {call, to, saved}, compute);
}

/// What is wrong with cuDNN's dropout on the device of @p q for the class of a call; found by
/// running it, once per class.
std::string why_not_own_masks(Queue& q, FlashCall const& call) {
  static MaskFindings& findings = *new MaskFindings;
  std::string wrong =
      findings.refusal(call.config, device_settings().deterministic, [&]() -> std::string {
        AttentionCalls const calls{
            [](Queue& queue, auto const& config, auto const& to, auto const& in) {
              return cudnn_forward(queue, {config, in}, to);
            },
            [](Queue& queue, auto const& config, auto const& to, auto const& in,
               auto const& saved) {
              return cudnn_backward(queue, {config, in}, to, saved);
            }};
        return check_masks(
            call.config, [&](AttentionSample& sample) { return compute_sample(q, calls, sample); });
      });
  if (wrong.empty() && !cudnn_has_plans(call)) wrong = no_plan;
  return refusal_of_masks(call.config.drop.p, wrong);
}

bool uses_cudnn(Queue& q, FlashCall const& call) {
  if (!memory::on_gpu(q)) return false;
  DeviceAttention const wanted = device_settings().attention;
  std::string refusal = why_not_cudnn(call, cudnn_device());
  if (refusal.empty() && call.config.drop.p > 0.0f && wanted != DeviceAttention::portable)
    refusal = why_not_own_masks(q, call);
  if (choose_attention(wanted, refusal) == AttentionLibrary::cudnn) return true;
  if (wanted == DeviceAttention::automatic) say_once(call.config.dtype, refusal);
  return false;
}

/// "cuDNN" and its masks besides the causal one.
char const* cudnn_route(FlashCall const& call) {
  if (!call.in.documents.empty()) return "cuDNN with a mask of documents";
  return call.config.drop.p > 0.0f ? "cuDNN with its own dropout masks" : "cuDNN";
}

/// Describes the next launch to a launch record: it moves @p of_queries rows as those of queries
/// and
/// @p of_keys as those of keys.
void note_attention(Queue const& q, char const* kernel, AttentionConfig const& config,
                    std::int64_t of_queries, std::int64_t of_keys) {
  auto const& shape = config.shape;
  std::int64_t const heads = of_queries * shape.heads + of_keys * shape.kv_heads;
  memory::note_bytes(
      q, kernel,
      static_cast<std::size_t>(shape.batch * shape.sequence * shape.head_dim * heads) *
          size_of(config.dtype));
}

}  // namespace

AttentionLibrary choose_attention(DeviceAttention wanted, std::string const& refusal) {
  if (wanted == DeviceAttention::portable) return AttentionLibrary::portable;
  TESSERA_VALIDATE(refusal.empty() || wanted != DeviceAttention::cudnn, ConfigError,
                   "--device_attention cudnn: cuDNN does not compute ", refusal,
                   "; use --device_attention auto");
  return refusal.empty() ? AttentionLibrary::cudnn : AttentionLibrary::portable;
}

std::string refusal_of_masks(float p, std::string const& wrong) {
  if (wrong.empty()) return "";
  bool const other_plans = wrong == no_plan && device_settings().deterministic;
  return concat("a dropout of ", p,
                " on attention weights (attn_pdrop) as training needs it: ", wrong,
                other_plans ? " that repeats its bits; --deterministic false may find one" : "");
}

void attention_on_device(Queue& q, AttentionConfig const& config, AttentionOutput const& to,
                         AttentionInput const& from) {
  FlashCall const call{config, from};
  Timed const timed(q, "tessera::kernels::attention");
  float* const lse = to.lse.as<float>();
  if (uses_cudnn(q, call) && cudnn_forward(q, call, to))
    return note_route("attention", cudnn_route(call));
  note_route("attention", "portable kernel");
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(config.shape.head_dim, [&](auto width) {
      flash_forward<decltype(width)::value, team>(
          call, to.out.data(), lse, [&](char const* name, auto const& rule) {
            note_attention(q, name, config, 2, 2);
            parallel_teams<team>(q, name, rule.teams(), rule);
          });
    });
  });
}

void attention_backward_on_device(Queue& q, AttentionConfig const& config,
                                  AttentionGradients const& to, AttentionInput const& from,
                                  AttentionSaved const& saved, float* delta) {
  FlashCall const call{config, from};
  AttentionShape const& shape = config.shape;
  Timed const timed(q, "tessera::kernels::attention_backward");
  if (uses_cudnn(q, call)) {
    std::string const refusal = why_not_cudnn(to);
    bool const fits =
        choose_attention(device_settings().attention, refusal) == AttentionLibrary::cudnn;
    if (!fits) say_once(config.dtype, refusal);
    if (fits && cudnn_backward(q, call, to, saved))
      return note_route("attention backward", cudnn_route(call));
    // the portable kernel would drop other weights than cuDNN's forward pass has
    TESSERA_VALIDATE(
        config.drop.p <= 0.0f, ConfigError,
        "cuDNN has computed attention with its own dropout masks and has no plan, or no "
        "room for one, for the backward pass of this layout; use --device_attention "
        "portable, or --deterministic false, which needs less memory");
  }
  note_route("attention backward", "portable kernel");
  char const* const first = "tessera::kernels::attention_backward_delta";
  memory::note_operands(q, first, saved.dout, saved.out, saved.lse);
  parallel_for(q, first, shape.batch * shape.heads * shape.sequence,
               flash_delta(call, saved, delta));
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    with_flash_width(shape.head_dim, [&](auto width) {
      flash_backward<decltype(width)::value, team>(
          call, to, saved, delta, [&](char const* name, auto const& rule) {
            bool const of_keys = std::string_view(name).ends_with("keys");
            note_attention(q, name, config, of_keys ? 2 : 3, of_keys ? 4 : 2);
            parallel_teams<team>(q, name, rule.teams(), rule);
          });
    });
  });
}

template <class T>
void decode_on_device(Queue& q, DecodeCall<T> const& call) {
  with_team_size(q, [&](auto threads) {
    constexpr int team = decltype(threads)::value;
    TeamDecode<T, team> const rule{call};
    parallel_teams<team>(q, "tessera::kernels::attention_decode", rule.teams(), rule);
  });
}
template void decode_on_device(Queue&, DecodeCall<float> const&);
template void decode_on_device(Queue&, DecodeCall<float16> const&);
template void decode_on_device(Queue&, DecodeCall<bfloat16> const&);

}  // namespace tessera::kernels::detail

#pragma once
/// Computes the samples of mask_check.hpp on a queue, with operands in its memory space.

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "attention/mask_check.hpp"
#include "tessera/kernels/attention/attention.hpp"

namespace tessera::kernels::detail {

/// Attention under check. Both add to the queue and return true, or return false when the library
/// has no plan for the call.
struct AttentionCalls {
  std::function<bool(Queue&, AttentionConfig const&, AttentionOutput const&, AttentionInput const&)>
      forward;
  std::function<bool(Queue&, AttentionConfig const&, AttentionGradients const&,
                     AttentionInput const&, AttentionSaved const&)>
      backward;
};

/// What compute_sample() says when a call returns false.
inline constexpr char const* no_plan = "it has no plan for both passes";

/// Copies the operands to the queue's memory as fused rows of queries, keys and values, makes both
/// calls, copies the results back and waits for them. In place of a stream, which may be captured,
/// it computes on a stream of its own.
/// @return why the sample was not computed, or empty
std::string compute_sample(Queue& q, AttentionCalls const& calls, AttentionSample& sample);

/// The findings about a library's masks, one per class of shapes.
class MaskFindings {
 public:
  /// @p check's answer for the class of @p config; the first caller asks it, the others get its
  /// answer. What it throws is an answer too, except that memory is too small, which may pass.
  std::string refusal(AttentionConfig const& config, bool deterministic,
                      std::function<std::string()> const& check);

 private:
  using Class = std::array<std::int64_t, 7>;
  std::mutex mutex_;
  std::map<Class, std::string> found_;
};

}  // namespace tessera::kernels::detail

#pragma once
/// Resolves dtypes, loss scale and the averaging of gradients.

#include "tessera/config/resolved_config.hpp"

namespace tessera::config::detail {

struct PrecisionInputs {
  TrainingArguments const& args;
  OptionValues const& json;         ///< the DeepSpeed keys; empty without a configuration
  bool fp16 = false, bf16 = false;  ///< the blocks' switches and the flags, already compared
};

/// Reads and writes @p out, whose stage is known. @throws ConfigError, UsageError
void resolve_precision(PrecisionInputs const& from, ResolvedConfig& out);

}  // namespace tessera::config::detail

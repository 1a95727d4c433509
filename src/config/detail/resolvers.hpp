#pragma once
/// Parts of the resolution of a configuration: current spellings, dtypes and loss scale, batch
/// sizes, and fields by name.

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/config/arguments.hpp"
#include "tessera/config/option_values.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/config_tree.hpp"

namespace tessera::config::detail {

struct PrecisionInputs {
  TrainingArguments const& args;
  bool fp16 = false, bf16 = false;  ///< the blocks' switches and the flags, already compared
};

/// Reads and writes @p out, whose stage is known. @throws ConfigError, UsageError
void resolve_precision(PrecisionInputs const& from, ResolvedConfig& out);

struct BatchFactor {
  std::string name;       ///< as it was written: a key or a flag
  std::int64_t size = 0;  ///< 0: it was not written, and is derived
};

/// Names the sizes that were written, and only those. @pre train_batch_size @p total is not the
/// product of @p factors
std::string batch_problem(std::int64_t total, std::vector<BatchFactor> const& factors);

/// Sets @p value, which describe() calls @p field, to the written value of @p key, if there is one.
template <class T>
void take(DeepSpeedConfig const& json, std::string const& key, ResolvedConfig& config,
          char const* field, T& value) {
  auto const* written = json.find(key);
  if (!written) return;
  assign(value, *written, key);
  config.origins[field] = Origin::deepspeed;
}

struct CanonicalConfig {
  ConfigTree tree;
  std::vector<std::string> notes;  ///< one line per deprecated key
};

/// Translates "zero_optimization": true, bfloat16, cpu_offload, optimizer names in any case, and
/// lists of equal rates. @p source names the file in messages.
/// @throws ConfigError when an old and the current name are both given, or a section lacks its type
CanonicalConfig canonical_config(ConfigTree tree, std::string const& source);

/// Returns the values of a configuration that config::describe() writes.
ConfigTree describe_fields(ResolvedConfig const& config);

/// The values that only flags set, not DeepSpeed's keys.
void copy_arguments(TrainingArguments const& arguments, ResolvedConfig& config);

}  // namespace tessera::config::detail

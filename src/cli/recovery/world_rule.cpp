#include "recovery/world_rule.hpp"

#include <algorithm>
#include <utility>

#include "commands.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/node_groups.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"

namespace tessera::cli {

WorldRule::WorldRule(Words words, int ranks, int ranks_per_node)
    : words_(std::move(words)), ranks_(ranks), ranks_per_node_(ranks_per_node) {
  auto const arguments = config::parse_arguments(words_);
  hidden_size_ = std::max<std::int64_t>(known_hidden_size(arguments), 1);
  auto const resolved = config::resolve(arguments, ranks, hidden_size_);
  batch_ = resolved.train_batch_size;
  micro_batch_ = resolved.micro_batch_size;
}

std::optional<WorldRule::Words> WorldRule::words_for(int ranks) const {
  if (ranks == ranks_) return words_;
  if (keeps_batch(words_, ranks)) return words_;
  if (batch_ % (micro_batch_ * ranks) != 0) return std::nullopt;
  auto words = words_;
  words.insert(words.end(),
               {"--gradient_accumulation_steps", std::to_string(batch_ / (micro_batch_ * ranks))});
  return keeps_batch(words, ranks) ? std::optional(words) : std::nullopt;
}

bool WorldRule::keeps_batch(Words const& words, int ranks) const {
  try {
    auto resolved = config::resolve(config::parse_arguments(words), ranks, hidden_size_);
    config::place_on_nodes(resolved, ranks_per_node_);
    return resolved.train_batch_size == batch_ && resolved.micro_batch_size == micro_batch_;
  } catch (Error const&) {
    return false;
  }
}

}  // namespace tessera::cli

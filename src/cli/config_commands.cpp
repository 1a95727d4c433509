#include "commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "plot/loss_plot.hpp"
#include "tessera/config/arguments.hpp"
#include "tessera/config/learning_rate.hpp"
#include "tessera/config/node_groups.hpp"
#include "tessera/config/option_table.hpp"
#include "tessera/config/resolved_config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::cli {
namespace {

struct CheckArguments {
  std::string first;  ///< a file, or without one the first option
  std::vector<std::string> options;
  std::optional<int> ranks;
  std::int64_t hidden_size = 0;
};

/// Whether @p key belongs to a DeepSpeed configuration: a key of the top level, or a block.
bool is_deepspeed_key(std::string const& key) {
  auto const& options = config::deepspeed_table().options();
  return config::deepspeed_table().find(key) ||
         std::ranges::any_of(options, [&](auto const& o) { return o.name.starts_with(key + "."); });
}

/// The words of tessera-train: a file is a run file or, as --deepspeed, a DeepSpeed configuration.
std::vector<std::string> training_words(CheckArguments const& a) {
  auto words = a.options;
  if (!a.first.empty()) words.insert(words.begin(), a.first);
  if (words.empty() || words[0].starts_with("-")) return words;
  if (words[0].ends_with(".yaml") || words[0].ends_with(".yml")) {
    words.insert(words.begin(), "--accelerate_config");
    return words;
  }
  auto const document = config::read_document(words[0]);
  TESSERA_VALIDATE(document.is_object(), ConfigError, words[0],
                   " must hold a JSON object {...}, found ", document.type_name());
  bool const run_file = std::ranges::any_of(document.as_object(), [](auto const& member) {
    return config::argument_table().find(member.first) && !is_deepspeed_key(member.first);
  });
  if (run_file) return words;
  for (auto const& word : words)
    TESSERA_VALIDATE(word != "--deepspeed" && !word.starts_with("--deepspeed="), UsageError,
                     "two DeepSpeed configurations: ", words[0], " and --deepspeed; leave one out");
  words.insert(words.begin(), "--deepspeed");
  return words;
}

/// The sizes that are "auto" follow the hidden size; without it their rule is the value.
void describe_automatic_sizes(config::ResolvedConfig const& resolved, ConfigTree& tree) {
  constexpr std::pair<char const*, char const*> rules[] = {
      {"reduce_bucket_size", "auto: hidden size * hidden size"},
      {"prefetch_bucket_size", "auto: 0.9 * hidden size * hidden size"},
      {"param_persistence_threshold", "auto: 10 * hidden size"}};
  for (auto const& [name, rule] : rules)
    if (auto const origin = resolved.origins.find(name);
        origin != resolved.origins.end() && origin->second == config::Origin::derived)
      tree[name].set("value", rule);
}

/// An incomplete command line is an error only when it says what to do.
void check_completeness(config::TrainingArguments const& arguments) {
  try {
    config::require_run(arguments);
  } catch (UsageError const& error) {
    if (arguments.do_train || arguments.do_eval || arguments.do_generate) throw;
    if (!arguments.values.entries.empty() &&
        !(arguments.values.entries.size() == 1 && arguments.given("deepspeed")))
      fmt::print(stderr, "note: a run needs more: {}\n", error.what());
  }
}

void check(CheckArguments const& a) {
  auto const words = training_words(a);
  TESSERA_VALIDATE(!words.empty(), UsageError,
                   "nothing to check: give a DeepSpeed JSON, a run file, or -- and options of "
                   "tessera-train");
  auto const arguments = config::parse_options(words);
  check_completeness(arguments);
  std::int64_t const known = a.hidden_size > 0 ? a.hidden_size : known_hidden_size(arguments);
  auto resolved = config::resolve(arguments, a.ranks.value_or(1), std::max<std::int64_t>(known, 1));
  if (a.ranks && !resolved.shards_within_nodes) config::place_on_nodes(resolved, 0);
  auto tree = config::describe(resolved);
  if (known == 0) describe_automatic_sizes(resolved, tree);
  fmt::print("{}\n", tree.dump(2));
  auto const& notes = std::as_const(resolved);
  for (auto const* list : {&arguments.hints, &notes.notes, &notes.notes_on_cpus})
    if (list != &notes.notes_on_cpus || arguments.device_memory.empty())
      for (auto const& note : *list) fmt::print(stderr, "note: {}\n", note);
  auto const world_size = a.ranks ? config::WorldSize::known : config::WorldSize::assumed;
  for (auto const& trap : config::find_traps(arguments, resolved, world_size))
    fmt::print(stderr, "trap: {}\n", trap);
}

struct RateArguments {
  CheckArguments check;
  std::int64_t steps = 0;
  std::string plot;
};

/// The rates of a run with that many optimizer steps.
void print_rates(RateArguments const& a) {
  auto const words = training_words(a.check);
  auto const arguments = config::parse_options(words);
  auto const resolved = config::resolve(arguments, a.check.ranks.value_or(1),
                                        std::max<std::int64_t>(a.check.hidden_size, 1));
  auto const schedule = config::learning_rate_schedule(resolved, a.steps);
  std::vector<double> rates;
  for (std::int64_t step = 1; step <= a.steps; ++step) rates.push_back(schedule(step));
  if (a.plot.empty()) return fmt::print("{}", rates_csv(rates));
  write_file_atomically(a.plot, draw_rates(rates, "Learning rate"));
  fmt::print("{}\n", a.plot);
}

void add_check_options(Command& app, CheckArguments& a) {
  app.add("--ranks,--world_size", a.ranks, "number of ranks (default: 1)").at_least(1);
  app.add("--hidden_size", a.hidden_size,
          "hidden size of the model, for sizes that are \"auto\" (default: that of the "
          "model in the options)")
      .at_least(1);
  app.add("file FILE", a.first,
          "a DeepSpeed JSON, a run file of tessera-train, or Accelerate's YAML");
  app.add_rest("options", a.options, "options of tessera-train", Command::Rest::training);
}

}  // namespace

void add_config_commands(Command& app) {
  auto& group =
      app.add_command("config", "Check configurations; print the reference of all options");
  auto const a = std::make_shared<CheckArguments>();
  auto& check_app = group.add_command(
      "check",
      "Resolve a DeepSpeed JSON, a run file or options of tessera-train as a run does, and print "
      "every value with its origin");
  add_check_options(check_app, *a);
  check_app.run([a] { check(*a); });
  auto const key = std::make_shared<std::string>();
  auto& explain_app = group.add_command(
      "explain", "Explain an option of tessera-train or a key of the DeepSpeed JSON");
  explain_app.add("key", *key, "its name: zero_optimization.stage, stage or bf16").required();
  explain_app.run([key] { fmt::print("{}", config::explain(*key)); });
  auto const rates = std::make_shared<RateArguments>();
  auto& rates_app =
      group.add_command("lr", "Print the learning rate of every step as CSV, or draw it as SVG");
  rates_app.add("--steps", rates->steps, "optimizer steps of the run")
      .required()
      .between(1, 10'000'000);
  rates_app.add("--plot FILE", rates->plot, "SVG file to write instead");
  add_check_options(rates_app, rates->check);
  rates_app.run([rates] { print_rates(*rates); });
  auto const which = std::make_shared<std::string>();
  auto& page = group.add_command(
      "page", "Print the Markdown reference of the flags or of the DeepSpeed keys");
  page.add("which", *which, "flags or deepspeed").required().one_of({"flags", "deepspeed"});
  page.run([which] {
    fmt::print("{}", *which == "flags" ? config::arguments_page() : config::deepspeed_page());
  });
}

}  // namespace tessera::cli

#include "manual/value_kinds.hpp"

#include <algorithm>
#include <utility>

#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

using Source = ValueKind::Source;

struct Known {
  char const* option;
  Source source;
  char const* name;
};

/// Names mean the same in every command.
constexpr Known known[] = {
    {"checkpoint", Source::directory, "DIR"},
    {"checkpoint_dir", Source::directory, "DIR"},
    {"directory", Source::directory, "DIR"},
    {"run_directory", Source::directory, "DIR"},
    {"run", Source::directory, "DIR"},
    {"destination", Source::directory, "DIR"},
    {"source", Source::directory, "DIR"},
    {"output_dir", Source::directory, "DIR"},
    {"tokenizer", Source::directory, "DIR"},
    {"dir", Source::directory, "DIR"},
    {"like", Source::directory, "DIR"},
    {"why", Source::directory, "DIR"},
    {"enable_each_rank_log", Source::directory, "DIR"},
    {"a", Source::file, "PATH"},
    {"b", Source::file, "PATH"},
    {"output", Source::file, "PATH"},
    {"config", Source::file, "PATH"},
    {"deepspeed_json", Source::file, "FILE"},
    {"file", Source::file, "FILE"},
    {"files", Source::file, "FILES"},
    {"log", Source::file, "FILE"},
    {"hostfile", Source::file, "FILE"},
    {"program", Source::file, "PROGRAM"},
    {"template", Source::job_template, "TEMPLATE"},
    {"site", Source::site, "SITE"},
    {"tag", Source::text, "TAG"},
    {"tag_a", Source::text, "TAG"},
    {"tag_b", Source::text, "TAG"},
    {"max_shard_size", Source::text, "SIZE"},
    {"older-than", Source::text, "AGE"},
    {"time", Source::text, "TIME"},
    {"states", Source::text, "NAMES"},
    {"ranks-per-file", Source::text, "N|all"},
    {"text", Source::text, "TEXT"},
    {"arguments", Source::file, "ARGUMENTS"},
    {"flags", Source::file, "ARGUMENTS"},
};

ValueKind of_words(std::vector<std::string> words) {
  ValueKind out{Source::words, join(words, "|"), {}};
  out.words = std::move(words);
  return out;
}

/// The words of "TEXT:{fp32,bf16}".
std::vector<std::string> words_in(std::string const& type) {
  auto const open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return {};
  std::vector<std::string> out{""};
  for (char const c : type.substr(open + 1, close - open - 1))
    if (c == ',')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

std::string bare_name(CLI::Option const& option) {
  if (option.get_positional()) return option.get_name(true);
  return option.get_lnames().empty() ? option.get_snames().front() : option.get_lnames().front();
}

}  // namespace

ValueKind value_kind(CLI::Option const& option) {
  if (!option.get_positional() && option.get_items_expected_max() == 0)
    return {Source::flag, "", {}};
  std::string const name = bare_name(option), type = option.get_type_name();
  if (auto words = words_in(type); !words.empty()) return of_words(std::move(words));
  if (name == "dtype") return of_words({"fp32", "bf16", "fp16"});
  if (name == "compress") return of_words({"none", "gzip"});
  auto const* found = std::ranges::find(known, name, [](Known const& k) { return k.option; });
  if (found != std::end(known)) return {found->source, found->name, {}};
  bool const integer = type.starts_with("INT") || type.starts_with("UINT");
  return {Source::text, integer ? "N" : type.starts_with("FLOAT") ? "X" : "VALUE", {}};
}

ValueKind value_kind(config::Option const& option) {
  switch (option.type) {
    case config::OptionType::boolean:
      return of_words({"true", "false"});
    case config::OptionType::choice:
      return of_words(option.choices);
    case config::OptionType::path:
      return {Source::file, "PATH", {}};
    case config::OptionType::integer:
      return {Source::text, "N", {}};
    case config::OptionType::real:
      return {Source::text, "X", {}};
    case config::OptionType::list:
      if (!option.choices.empty()) return of_words(option.choices);
      return {Source::text, "WORD...", {}};
    default:
      return {Source::text,
              option.type == config::OptionType::json || option.type == config::OptionType::numbers
                  ? "JSON"
                  : "TEXT",
              {}};
  }
}

std::vector<CLI::Option const*> options_of(CLI::App const& app) {
  return app.get_options(
      [](CLI::Option const* o) { return !o->get_positional() && !o->get_group().empty(); });
}

std::vector<CLI::Option const*> arguments_of(CLI::App const& app) {
  return app.get_options([](CLI::Option const* o) { return o->get_positional(); });
}

std::vector<CLI::App const*> commands_of(CLI::App const& app) {
  return app.get_subcommands([](CLI::App const*) { return true; });
}

}  // namespace tessera::cli

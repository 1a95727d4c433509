#include "tessera/config/option_table.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::config {
namespace {

constexpr std::size_t columns = 100, meaning_column = 36;

std::string default_text(Option const& option) {
  if (option.default_value.is_null()) return "none";
  if (option.default_value.is_string())
    return option.default_value.as_string().empty() ? "none" : option.default_value.as_string();
  if (option.default_value.is_array()) {
    std::string out;
    for (auto const& item : option.default_value.as_array())
      out += (out.empty() ? "" : ", ") + (item.is_string() ? item.as_string() : item.dump());
    return out.empty() ? "none" : out;
  }
  if (!option.default_value.is_number()) return option.default_value.dump();
  std::ostringstream out;  // 5e-05, 500000000 and 0.9 as people write them
  if (option.default_value.is_int())
    out << option.default_value.as_int();
  else
    out << option.default_value.as_double();
  return out.str();
}

/// Words of each OptionType: the type in texts, and the value in --help.
constexpr std::pair<char const*, char const*> type_words[] = {
    {"true or false", ""}, {"integer", "N"},    {"number", "X"},
    {"text", "TEXT"},      {"path", "PATH"},    {"", "NAME"},
    {"words", "WORD..."},  {"numbers", "JSON"}, {"JSON", "JSON"}};

std::string type_text(Option const& option) {
  if (!option.label.empty()) return option.label;
  std::string const type = type_words[static_cast<int>(option.type)].first;
  return type + (type.empty() || option.choices.empty() ? "" : ": ") + join(option.choices);
}

/// Appends @p text in words from column @p used on; later lines start at @p indent.
void wrap(std::string& out, std::string const& text, std::size_t used, std::size_t indent) {
  std::istringstream words(text);
  bool first = true;
  for (std::string word; words >> word; first = false) {
    if (!first && used + 1 + word.size() > columns) {
      out += '\n';
      out.append(indent, ' ');
      used = indent;
    } else if (!first) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
  }
  out += '\n';
}

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '\\');
  return text;
}

std::string range_text(Option const& option) {
  std::ostringstream out;
  if (option.minimum) out << (option.minimum_excluded ? ", above " : ", from ") << *option.minimum;
  if (option.maximum)
    out << (option.minimum && !option.minimum_excluded ? " to " : ", up to ") << *option.maximum;
  return out.str();
}

std::string support_text(Option const& option) {
  std::string out = option.support == Support::full   ? "yes"
                    : option.support == Support::hint ? "accepted, " + option.note
                                                      : "no: " + option.note;
  std::string reason;
  for (auto const& [choice, why] : option.exceptions) {  // one reason for the choices that share it
    if (!reason.empty() && why != reason) out += ": " + reason;
    out += (why == reason ? ", `" : "; not `") + choice + "`";
    reason = why;
  }
  return reason.empty() ? out : out + ": " + reason;
}

std::string row(Option const& option) {
  std::string name = "`" + option.name + "`";
  for (auto const& alias : option.aliases) name += ", `" + alias + "`";
  std::string type = type_text(option) + range_text(option);
  if (!option.unit_name.empty()) type += " (" + option.unit_name + ")";
  if (option.automatic) type += ", or auto: " + *option.automatic;
  return "| " + name + " | " + cell(type) + " | " + cell(default_text(option)) + " | " +
         cell(option.meaning) + " | " + cell(support_text(option)) + " |\n";
}

}  // namespace

std::string explain(Option const& option) {
  std::string out = "  " + option.meaning + "\n  values: " + type_text(option) + range_text(option);
  if (!option.unit_name.empty()) out += " (" + option.unit_name + ")";
  if (option.automatic) out += ", or auto: " + *option.automatic;
  out += "\n  default: " + default_text(option) + "\n";
  if (!option.aliases.empty()) out += "  other names: " + join(option.aliases) + "\n";
  return out + "  supported: " + support_text(option) + "\n";
}

namespace {

/// The options of @p table that @p key names: completely, or by a part of a dotted name.
std::string explanations(OptionTable const& table, std::string const& key, char const* where) {
  std::string out;
  auto const add = [&](Option const& option) {
    out += (out.empty() ? "" : "\n") + option.name + " (" + where + ")\n" + explain(option);
  };
  if (auto const* exact = table.find(key))
    add(*exact);
  else
    for (auto const& option : table.options())
      if (option.name.ends_with("." + key) || option.name.starts_with(key + ".")) add(option);
  return out;
}

}  // namespace

std::string explain(std::string const& name) {
  std::string const key = name.substr(std::min(name.find_first_not_of('-'), name.size())),
                    in_flags = explanations(argument_table(), key, "tessera-train"),
                    in_json = explanations(deepspeed_table(), key, "DeepSpeed JSON");
  if (!in_flags.empty() || !in_json.empty())
    return in_flags + (in_flags.empty() || in_json.empty() ? "" : "\n") + in_json;
  auto names = argument_table().names();
  for (auto const& json : deepspeed_table().names()) names.push_back(json);
  std::string const near = nearest_name(key, names);
  throw UsageError(concat("no option or key is named '", key, "'",
                          near.empty() ? "; tessera config page prints all of them"
                                       : concat("; did you mean ", near, "?")));
}

std::string shown_names(Option const& option) {
  if (option.is_positional) return option.name;
  return (option.letter ? std::string{'-', option.letter} + ", --" : "--") + option.name;
}

std::string shown_value(Option const& option) {
  bool const is_json = option.type == OptionType::json || option.type == OptionType::numbers;
  return !option.value_name.empty() || option.is_positional ? option.value_name
         : is_json && !option.label.empty()                 ? "VALUE"
                                            : type_words[static_cast<int>(option.type)].second;
}

/// A meaning that says its default is left as it is, and so is a default that is no value, which
/// means "not given".
std::string shown_meaning(Option const& option) {
  std::string out = option.meaning;
  if (!option.choices.empty()) out += " [" + join(option.choices) + "]";
  for (auto const& alias : option.aliases)
    out += (&alias == &option.aliases.front() ? "; also " : ", ") +
           std::string(alias.size() == 1 ? "-" : "--") + alias;
  auto const& value = option.default_value;
  std::string const text = default_text(option);
  bool const plain = text == "none" || value == ConfigTree(false) || option.is_positional ||
                     out.find("(default:") != std::string::npos ||
                     (value.is_number() && option.minimum && value.as_double() < *option.minimum);
  return plain ? out : out + " (default: " + text + ")";
}

std::string help(OptionTable const& table, std::string const& program) {
  std::string out, group, accepted;
  std::istringstream lines(program);
  for (std::string line; std::getline(lines, line);) wrap(out, line, 0, 0);
  for (auto const& option : table.options()) {
    if (option.support == Support::hint)
      accepted += (accepted.empty() ? "--" : ", --") + option.name;
    if (option.support != Support::full) continue;
    if (option.group != group) out += "\n" + option.group + "\n";
    group = option.group;
    std::string const value = shown_value(option);
    std::string const head =
        "  " + shown_names(option) + (value.empty() || option.is_positional ? "" : " " + value);
    out += head;
    if (head.size() + 2 > meaning_column)
      out += "\n" + std::string(meaning_column, ' ');
    else
      out += std::string(meaning_column - head.size(), ' ');
    wrap(out, shown_meaning(option), meaning_column, meaning_column);
  }
  if (accepted.empty()) return out;
  out += "\nAccepted for compatibility, without an effect (--help NAME says why)\n  ";
  wrap(out, accepted, 2, 2);
  return out;
}

std::string markdown(OptionTable const& table, std::string const& head) {
  std::string out = head;
  std::string group;
  for (auto const& option : table.options()) {
    if (option.group != group)
      out += "\n## " + option.group +
             "\n\n| name | type | default | meaning | supported |\n|---|---|---|---|---|\n";
    group = option.group;
    out += row(option);
  }
  return out;
}

namespace {

char const* const options_head = R"(# Options of tessera-train

For users who write command lines or run files. `tessera-train [run.json] [--name value ...]` takes
the arguments of Hugging Face's `run_clm.py`, and a few of its own, which are marked below.

- `--name value` and `--name=value` are equal, and so are `-` and `_` in names. A flag without a
  value (`--bf16`) means true; `--bf16 false` and `--no_bf16` mean false. The last occurrence wins.
- `run.json` is one flat object with the same names; flags after it override it. Its `deepspeed` is
  a path or the object itself.
- Every value has an origin (default, accelerate, run file, flag, deepspeed, derived), which
  `--print_config` prints and the manifest of a checkpoint records. Later ones win.
- An unknown flag, a wrong value or a contradiction ends with exit code 64, in a file with 78. The
  message names the nearest known name.
- Names marked *accepted* may stay in a command line written for `run_clm.py`; the log says what
  differs. Names marked *no* are refused with every value but their default.
- Batch sizes, precision, optimizer, clipping and schedule may also be set in the
  [DeepSpeed configuration](deepspeed-config.md). There, `"auto"` takes the flag. A number that
  contradicts a given flag is an error; a flag that was not given gives way to the number.

This page is generated from the table the program reads.
)";

char const* const deepspeed_head = R"(# DeepSpeed configuration

For users who bring a DeepSpeed JSON: which keys Tessera knows and what it does with each.
`--deepspeed FILE` (or the object itself in a run file) takes the configuration. As DeepSpeed does,
Tessera reads it as [Hjson](https://hjson.github.io): comments (`//`, `#`, `/* */`), keys and text
without quotes, trailing commas and lines without their comma are accepted. Text without quotes
extends to the end of its line, commas and comments included.
The keys below are checked at every level: an unknown key, a wrong type or a value out of range ends
with exit code 78, and the message names the nearest known name.

- Sizes are elements, not bytes; `5e8` is an integer.
- `"auto"` is accepted where the type says so and takes the value named there, as the Hugging Face
  Trainer fills it.
- A number here that contradicts a given flag is an error that names both values. A flag that was
  not given gives way to the number. A key that is absent keeps the flag's value.
- The batch keys satisfy
  `train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks`.
  A missing key is derived: from the total and one other key by division, from only the total with
  one micro-step per optimizer step, otherwise from the flags.
- An `optimizer` section has one parameter group: every parameter decays, as under the Trainer.
  Without the section biases and norms do not decay.
- A `scheduler` section replaces `--lr_scheduler_type`.
- The switch of a feature that is not supported may be written as false; its other keys have no
  effect then, unknown ones included. A block without a switch passes when its values divide and
  compress nothing, as `"tensor_parallel": {"autotp_size": 1}`.
- One message names all unknown keys.
- `data_types.grad_accum_dtype` and `torch_autocast.dtype` take the names of PyTorch too (`float32`,
  `half`, `torch.bfloat16`).
- In `zero_optimization`, `fp16`, `bf16` and the monitors, `"2"`, `"true"` and 1 count as the number
  or boolean that they spell, and `"auto"` as the default.
- Deprecated names (`cpu_offload`, `zero_optimization: true`, `bfloat16`) are translated, with a note
  in the log.
- Differences from DeepSpeed: gradients are accumulated in fp32 unless `data_types.grad_accum_dtype`
  is set; stages 1 to 3 use a true reduce-scatter; gradients are unscaled with the loss scale that
  produced them; non-finite bf16 gradients skip the step at every stage.

This page is generated from the table the program reads.
)";

}  // namespace

std::string arguments_help() {
  return help(
      argument_table(),
      "usage: tessera-train [run.json] [--name value ...]\n"
      "Trains, evaluates and samples causal language models. Takes the arguments of Hugging\n"
      "Face's run_clm.py.\n");
}

std::string arguments_page() { return markdown(argument_table(), options_head); }

std::string deepspeed_page() { return markdown(deepspeed_table(), deepspeed_head); }

}  // namespace tessera::config

#include "tessera/config/option_table.hpp"

#include <algorithm>
#include <sstream>

namespace tessera::config {
namespace {

constexpr std::size_t columns = 100, meaning_column = 36;

std::string joined(std::vector<std::string> const& words, char const* between) {
  std::string out;
  for (auto const& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

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

std::string type_text(Option const& option) {
  if (!option.label.empty()) return option.label;
  switch (option.type) {
    case OptionType::boolean:
      return "true or false";
    case OptionType::integer:
      return "integer";
    case OptionType::real:
      return "number";
    case OptionType::path:
      return "path";
    case OptionType::choice:
      return joined(option.choices, ", ");
    case OptionType::list:
      return option.choices.empty() ? "words" : "words: " + joined(option.choices, ", ");
    case OptionType::numbers:
      return "numbers";
    case OptionType::json:
      return "JSON";
    case OptionType::string:
      return "text";
  }
  return "";
}

std::string placeholder(Option const& option) {
  switch (option.type) {
    case OptionType::boolean:
      return "";
    case OptionType::integer:
      return " N";
    case OptionType::real:
      return " X";
    case OptionType::path:
      return " PATH";
    case OptionType::choice:
      return " NAME";
    case OptionType::list:
      return " WORD...";
    case OptionType::numbers:
    case OptionType::json:
      return option.label.empty() ? " JSON" : " VALUE";
    case OptionType::string:
      return " TEXT";
  }
  return "";
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

std::string help_meaning(Option const& option) {
  std::string out = option.meaning;
  if (option.type == OptionType::choice) out += " [" + joined(option.choices, ", ") + "]";
  bool const plain = option.default_value.is_null() || option.default_value == ConfigTree(false) ||
                     option.default_value == ConfigTree("");
  return plain ? out : out + " (default: " + default_text(option) + ")";
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
  if (!option.aliases.empty()) out += "  other names: " + joined(option.aliases, ", ") + "\n";
  return out + "  supported: " + support_text(option) + "\n";
}

std::string help(OptionTable const& table, std::string const& program) {
  std::string out = program;
  std::string group, accepted;
  for (auto const& option : table.options()) {
    if (option.support == Support::hint)
      accepted += (accepted.empty() ? "--" : ", --") + option.name;
    if (option.support != Support::full) continue;
    if (option.group != group) out += "\n" + option.group + "\n";
    group = option.group;
    std::string const head = "  --" + option.name + placeholder(option);
    out += head;
    if (head.size() + 2 > meaning_column)
      out += "\n" + std::string(meaning_column, ' ');
    else
      out += std::string(meaning_column - head.size(), ' ');
    wrap(out, help_meaning(option), meaning_column, meaning_column);
  }
  if (accepted.empty()) return out;
  out +=
      "\nAccepted for compatibility, without an effect "
      "(docs/reference/options.md says why)\n  ";
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

}  // namespace tessera::config

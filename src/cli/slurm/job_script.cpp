#include "slurm/job_script.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <regex>
#include <sstream>

#include "launch/run_program.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"

namespace tessera::cli {
namespace {

constexpr std::string_view sbatch_mark = "#SBATCH ";

bool is_variable_name(std::string const& name) {
  return !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0])) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

/// sbatch splits #SBATCH lines by its own rules for quotes and #, so only words without them are
/// accepted.
void check_sbatch_word(std::string const& word) {
  std::string const allowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%[]*";
  TESSERA_VALIDATE(word.starts_with("--") && word.size() > 2 &&
                       word.find_first_not_of(allowed) == std::string::npos,
                   UsageError, "'", word,
                   "' cannot be used in an #SBATCH line; write --name or --name=value without "
                   "spaces, quotes or #");
}

std::vector<std::string> preamble(JobSettings const& settings) {
  std::vector<std::string> lines;
  for (auto const& module : settings.site.modules)
    lines.push_back("module load " + shell_quoted(module));
  for (auto const& [name, value] : settings.site.exports)
    lines.push_back("export " + name + "=" + shell_quoted(value));
  if (!settings.arguments.empty()) lines.push_back("set -- " + shell_line(settings.arguments));
  return lines;
}

SiteProfile parse_site_profile(std::string const& text, std::string const& source) {
  SiteProfile site;
  int number = 0;
  for (auto const& line : lines_of(std::string(without_mark(text)))) {
    ++number;
    std::size_t const start = line.find_first_not_of(" \t");
    if (start == std::string::npos || line[start] == '#') continue;
    std::size_t const space = line.find_first_of(" \t", start);
    std::string const directive = line.substr(start, space - start);
    std::size_t const value_start =
        space == std::string::npos ? space : line.find_first_not_of(" \t", space);
    std::string value = value_start == std::string::npos ? "" : line.substr(value_start);
    value.erase(value.find_last_not_of(" \t\r") + 1);
    std::size_t const equals = value.find('=');
    if ((directive == "sbatch" || directive == "submit") && value.starts_with("--"))
      site.sbatch.push_back(value);
    else if (directive == "qsub" && value.starts_with("-"))
      site.qsub.push_back(value);
    else if (directive == "module" && !value.empty())
      site.modules.push_back(value);
    else if (directive == "export" && equals != std::string::npos &&
             is_variable_name(value.substr(0, equals)))
      site.exports.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    else
      throw DataError(
          concat(source, ":", number, ": '", line,
                 "' is not a directive; write sbatch --option=value (for PBS submit "
                 "--option=value, qsub -l name=value), module NAME or export NAME=VALUE"));
  }
  return site;
}

std::string fill_job_script(std::string const& script_template, JobSettings const& settings) {
  auto given = settings.site.sbatch;
  given.insert(given.end(), settings.sbatch.begin(), settings.sbatch.end());
  std::vector<std::string> options;  // the last value of an option is used
  for (auto const& word : given) {
    check_sbatch_word(word);
    check_sbatch_value(word);
    set_sbatch_option(options, word);
  }
  auto const replaced = [&](std::string const& line) {
    return line.starts_with(sbatch_mark) && is_replaced(line.substr(sbatch_mark.size()), options);
  };
  auto lines = lines_of(script_template);
  std::erase_if(lines, replaced);
  auto const last = std::find_if(lines.rbegin(), lines.rend(), [](std::string const& line) {
    return line.starts_with(sbatch_mark);
  });
  std::size_t const at = last == lines.rend() ? std::min<std::size_t>(1, lines.size())
                                              : static_cast<std::size_t>(lines.rend() - last);
  std::string script;
  auto const put = [&](std::string const& line) { script += line + "\n"; };
  for (std::size_t i = 0; i < at; ++i) put(lines[i]);
  for (auto const& option : options) put(std::string(sbatch_mark) + option);
  for (auto const& line : preamble(settings)) put(line);
  for (std::size_t i = at; i < lines.size(); ++i) put(lines[i]);
  return script;
}

namespace {

struct ValueRule {
  char const *name, *pattern, *must_be;
};
constexpr ValueRule rules[] = {
    {"--nodes", "[1-9][0-9]*(-[1-9][0-9]*)?", "a positive number, or a range such as 2-4"},
    {"--ntasks", "[1-9][0-9]*", "a positive number"},
    {"--ntasks-per-node", "[1-9][0-9]*", "a positive number"},
    {"--cpus-per-task", "[1-9][0-9]*", "a positive number"},
    {"--gpus-per-node", "([A-Za-z][A-Za-z0-9_.-]*:)?[1-9][0-9]*",
     "a positive number, also with a type such as a100:4"},
    {"--time", "[0-9]+(:[0-9]{1,2}){0,2}|[0-9]+-[0-9]{1,2}(:[0-9]{1,2}){0,2}|UNLIMITED|INFINITE",
     "minutes, HH:MM:SS or DAYS-HH:MM:SS"},
    {"--array", "[0-9]+(-[0-9]+(:[0-9]+)?)?(,[0-9]+(-[0-9]+(:[0-9]+)?)?)*(%[1-9][0-9]*)?",
     "indices such as 0-7 or 0,3,5, also with a limit of running tasks: 0-7%2"},
    {"--signal", "([RB]+:)?([A-Z][A-Z0-9]*|[0-9]+)(@[0-9]+)?",
     "a signal and seconds before the limit, such as USR1@600"},
    {"--partition", "[^=]+", "the name of a partition"},
    {"--account", "[^=]+", "the name of an account"},
    {"--qos", "[^=]+", "the name of a quality of service"},
    {"--job-name", ".+", "a name"},
    {"--output", ".+", "a file"},
};

std::string value_of(std::string const& word) {
  std::size_t const equals = word.find('=');
  return equals == std::string::npos ? "" : word.substr(equals + 1);
}

bool is_gpu_item(std::string const& item) { return item == "gpu" || item.starts_with("gpu:"); }

bool is_gpu_list(std::string const& word) {
  return sbatch_name(word) == "--gres" &&
         std::ranges::any_of(split(value_of(word), ','), is_gpu_item);
}
bool requests_gpus(std::string const& word) {
  return is_gpu_list(word) || sbatch_name(word) == "--gpus-per-node";
}

/// "--gres=gpu:a100:4,nvme:1" with @p count "2": "--gres=gpu:a100:2,nvme:1".
std::string with_gpu_count(std::string const& gres, std::string const& count) {
  std::string list;
  for (auto const& item : split(value_of(gres), ',')) {
    std::string written = item;
    if (is_gpu_item(item)) {
      std::size_t const last = item.rfind(':');
      bool const typed = count.find(':') != std::string::npos || item.find(':') == last;
      written = (typed ? "gpu" : item.substr(0, last)) + ":" + count;
    }
    list += (list.empty() ? "" : ",") + written;
  }
  return "--gres=" + list;
}

}  // namespace

std::string sbatch_name(std::string const& word) { return word.substr(0, word.find('=')); }

void check_sbatch_value(std::string const& word) {
  for (auto const& rule : rules)
    if (sbatch_name(word) == rule.name)
      TESSERA_VALIDATE(std::regex_match(value_of(word), std::regex(rule.pattern)), UsageError,
                       rule.name, " is '", value_of(word), "'; it must be ", rule.must_be);
}

void set_sbatch_option(std::vector<std::string>& options, std::string const& word) {
  if (auto const gres = std::ranges::find_if(options, is_gpu_list);
      sbatch_name(word) == "--gpus-per-node" && gres != options.end()) {
    *gres = with_gpu_count(*gres, value_of(word));
    return;
  }
  bool const gpus = requests_gpus(word);
  std::erase_if(options, [&](std::string const& other) {
    return sbatch_name(other) == sbatch_name(word) || (gpus && requests_gpus(other));
  });
  options.push_back(word);
}

bool is_replaced(std::string const& line, std::vector<std::string> const& options) {
  std::string const word = line.substr(0, line.find(' '));
  return std::ranges::any_of(options, [&](std::string const& option) {
    return sbatch_name(option) == sbatch_name(word) ||
           (requests_gpus(option) && requests_gpus(word));
  });
}

int ranks_of_script(std::string const& script) {
  std::optional<int> nodes, per_node, tasks;
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#SBATCH ")) continue;
    std::string const word = line.substr(8, line.find(' ', 8) - 8), text = value_of(word);
    int number = 0;
    auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) continue;
    if (sbatch_name(word) == "--nodes") nodes = number;
    if (sbatch_name(word) == "--ntasks-per-node") per_node = number;
    if (sbatch_name(word) == "--ntasks") tasks = number;
  }
  if (tasks) return *tasks;
  return nodes && per_node ? *nodes * *per_node : 0;
}

}  // namespace tessera::cli

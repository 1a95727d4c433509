#include "slurm/job_script.hpp"

#include <algorithm>
#include <sstream>

#include "launch/shell_words.hpp"
#include "slurm/sbatch_options.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/utf8.hpp"

namespace tessera::cli {
namespace {

constexpr std::string_view sbatch_mark = "#SBATCH ";

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

/// The lines between the #SBATCH lines and the template's commands.
std::vector<std::string> preamble(JobSettings const& settings) {
  std::vector<std::string> lines;
  for (auto const& module : settings.site.modules)
    lines.push_back("module load " + shell_quoted(module));
  for (auto const& [name, value] : settings.site.exports)
    lines.push_back("export " + name + "=" + shell_quoted(value));
  if (!settings.arguments.empty()) lines.push_back("set -- " + shell_line(settings.arguments));
  return lines;
}

}  // namespace

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
    if (directive == "sbatch" && value.starts_with("--"))
      site.sbatch.push_back(value);
    else if (directive == "module" && !value.empty())
      site.modules.push_back(value);
    else if (directive == "export" && equals != std::string::npos &&
             is_variable_name(value.substr(0, equals)))
      site.exports.emplace_back(value.substr(0, equals), value.substr(equals + 1));
    else
      throw DataError(concat(
          source, ":", number, ": '", line,
          "' is not a directive; write sbatch --option=value, module NAME or export NAME=VALUE"));
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

}  // namespace tessera::cli

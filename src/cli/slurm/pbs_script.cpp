#include "slurm/pbs_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <regex>
#include <sstream>

#include "tessera/core/error.hpp"

namespace tessera::cli {
namespace {

std::regex const select_line("#PBS -l select=(\\d+):ncpus=(\\d+):mpiprocs=(\\d+)(:ngpus=(\\d+))?");

/// What the job asks for, on each node but for `nodes`.
struct Request {
  int nodes = 1, cores = 1, ranks = 1, gpus = 0;
};

/// The select line of @p text. @throws DataError without one
Request request_in(std::string const& text) {
  std::smatch found;
  TESSERA_VALIDATE(std::regex_search(text, found, select_line), DataError,
                   "the template has no line `#PBS -l select=N:ncpus=C:mpiprocs=R`; add it");
  auto const number = [&](std::size_t group) {
    return found[group].matched ? std::stoi(found[group].str()) : 0;
  };
  return {number(1), number(2), number(3), number(5)};
}

std::string select_of(Request const& request) {
  auto line =
      fmt::format("-l select={}:ncpus={}:mpiprocs={}", request.nodes, request.cores, request.ranks);
  return request.gpus > 0 ? line + fmt::format(":ngpus={}", request.gpus) : line;
}

int count_of(std::string const& option, std::string const& value) {
  TESSERA_VALIDATE(std::regex_match(value, std::regex("[1-9][0-9]{0,6}")), UsageError, option,
                   " is '", value, "'; for PBS it must be a positive number");
  return std::stoi(value);
}

/// The beginning of a #PBS line that names what it sets: "-l walltime", "-q".
std::string key_of(std::string const& line) {
  bool const resource = line.starts_with("-l ");
  return line.substr(0, resource ? line.find('=') : line.find(' '));
}

/// Adds @p line; it replaces one of the same key.
void set_line(std::vector<std::string>& lines, std::string const& line) {
  std::erase_if(lines, [&](std::string const& other) { return key_of(other) == key_of(line); });
  lines.push_back(line);
}

/// The #PBS lines, without the mark, that the options of the job and its site become.
std::vector<std::string> pbs_lines(Request request, JobSettings const& settings) {
  std::map<std::string, std::string> const flags{
      {"--partition", "-q "}, {"--account", "-A "}, {"--job-name", "-N "},
      {"--output", "-o "},    {"--array", "-J "},   {"--dependency", "-W depend="}};
  std::vector<std::string> lines = settings.site.qsub;
  auto given = settings.site.sbatch;
  given.insert(given.end(), settings.sbatch.begin(), settings.sbatch.end());
  int cores_per_rank = 0;
  for (auto const& word : given) {
    check_sbatch_word(word);
    check_sbatch_value(word);
    auto const name = sbatch_name(word);
    auto const value = word.substr(std::min(word.size(), name.size() + 1));
    if (name == "--nodes")
      request.nodes = count_of(name, value);
    else if (name == "--ntasks-per-node")
      request.ranks = count_of(name, value);
    else if (name == "--cpus-per-task")
      cores_per_rank = count_of(name, value);
    else if (name == "--gpus-per-node")
      request.gpus = count_of(name, value);
    else if (name == "--time")
      set_line(lines, "-l walltime=" + pbs_walltime(value));
    else if (auto const flag = flags.find(name); flag != flags.end())
      set_line(lines, flag->second + value);
    else
      throw UsageError(
          concat("PBS has no equivalent of ", name,
                 "; write the option of qsub into a site profile: qsub -l name=value"));
  }
  if (cores_per_rank > 0) request.cores = cores_per_rank * request.ranks;
  set_line(lines, select_of(request));
  return lines;
}

}  // namespace

std::string pbs_walltime(std::string const& time) {
  std::smatch found;
  bool const known = std::regex_match(
      time, found, std::regex("(?:(\\d{1,3})-)?(\\d{1,6})(?::(\\d{1,2}))?(?::(\\d{1,2}))?"));
  TESSERA_VALIDATE(known, UsageError, "--time is '", time,
                   "'; for PBS it must be minutes, HH:MM:SS or DAYS-HH:MM:SS");
  auto const number = [&](std::size_t group) {
    return found[group].matched ? std::stol(found[group].str()) : 0L;
  };
  // without days one or two numbers begin with minutes, as in Slurm
  bool const hours_first = found[1].matched || found[4].matched;
  long const seconds = hours_first
                           ? number(1) * 86400 + number(2) * 3600 + number(3) * 60 + number(4)
                           : number(2) * 60 + number(3);
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

std::string fill_pbs_script(std::string const& script_template, JobSettings const& settings) {
  std::string const mark = "#PBS ";
  auto const lines = pbs_lines(request_in(script_template), settings);
  auto const replaced = [&](std::string const& line) {
    return std::ranges::any_of(lines, [&](std::string const& given) {
      return key_of(given) == key_of(line.substr(mark.size()));
    });
  };
  std::string head, commands;
  std::istringstream in(script_template);
  bool in_head = true;
  for (std::string line; std::getline(in, line);) {
    in_head = in_head && line.starts_with('#');
    if (line.starts_with(mark) && replaced(line)) continue;
    (in_head ? head : commands) += line + "\n";
  }
  for (auto const& line : lines) head += mark + line + "\n";
  for (auto const& line : preamble(settings)) head += line + "\n";
  return head + commands;
}

int ranks_of_pbs_script(std::string const& script) {
  auto const request = request_in(script);
  return request.nodes * request.ranks;
}

}  // namespace tessera::cli

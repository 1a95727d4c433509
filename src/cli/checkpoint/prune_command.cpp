#include "commands.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <memory>

#include "checkpoint/tables.hpp"
#include "tessera/checkpoint/tools/prune.hpp"
#include "tessera/checkpoint/tools/verify.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"

namespace tessera::cli {
namespace {

struct PruneArguments {
  std::string path, older_than;
  std::int64_t keep = 0;
  bool json = false, dry_run = false, damaged = false, verify = false;
};

void prune(PruneArguments const& a) {
  using Options = checkpoint::PruneOptions;
  TESSERA_VALIDATE(a.keep != 0 || !a.older_than.empty() || a.damaged, UsageError,
                   "nothing selected; give --keep N, --older-than AGE or --damaged");
  Options options{
      .checkpoints = a.path, .keep = a.keep, .older_than_seconds = age_seconds(a.older_than)};
  // --damaged without the others removes no complete checkpoint
  if (a.keep == 0) options.keep = a.older_than.empty() ? INT64_MAX : 1;
  options.damaged = a.damaged ? Options::Damaged::remove : Options::Damaged::list;
  options.check = a.verify ? Options::Check::checksums : Options::Check::sizes;
  options.mode = a.dry_run ? Options::Mode::dry_run : Options::Mode::remove;
  auto const verdicts = checkpoint::prune(options);
  std::int64_t bytes = 0, removed = 0;
  for (auto const& v : verdicts)
    if (v.removed) bytes += v.bytes, ++removed;
  if (a.json) {
    ConfigTree out = ConfigTree::array();
    for (auto const& v : verdicts)
      out.push_back(ConfigTree()
                        .set("name", v.name)
                        .set("bytes", v.bytes)
                        .set("removed", v.removed && !a.dry_run)
                        .set("would_remove", v.removed)
                        .set("why", v.why));
    return print_json(out);
  }
  std::string const verb = a.dry_run ? "would be removed" : "removed";
  auto const width = column_width(verdicts, 4, [](auto const& v) { return v.name; });
  for (auto const& v : verdicts)
    fmt::print("{:<{}}  {:<{}}  {:>10}  {}\n", v.removed ? verb : "kept", verb.size(), v.name,
               width, human_bytes(v.bytes), v.why);
  fmt::print("{} {} {}, {}\n", removed, plural(removed, "checkpoint"), verb, human_bytes(bytes));
}

}  // namespace

double age_seconds(std::string const& text) {
  if (text.empty()) return 0;
  std::size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (std::exception const&) {
    end = 0;
  }
  std::string const unit = text.substr(end);
  double const factor = unit.empty() || unit == "s" ? 1
                        : unit == "m"               ? 60
                        : unit == "h"               ? 3600
                        : unit == "d"               ? 86400
                        : unit == "w"               ? 7 * 86400
                                                    : -1;
  TESSERA_VALIDATE(end > 0 && value >= 0 && std::isfinite(value) && factor > 0, UsageError, "'",
                   text, "' is not an age; write 30m, 12h, 7d, 2w or a number of seconds");
  return value * factor;
}

void add_prune(Command& group) {
  auto const a = std::make_shared<PruneArguments>();
  auto& command = group.add_command(
      "prune", "Remove old checkpoints, but never the newest complete one or the one in `latest`");
  command.add("directory DIR", a->path, "run directory or its checkpoints directory").required();
  command.add("--keep", a->keep, "number of complete checkpoints to keep, the newest").at_least(1);
  command.add("--older-than AGE", a->older_than,
              "remove only checkpoints older than this: 30m, 12h, 7d, 2w");
  command.add("--damaged", a->damaged,
              "also remove damaged checkpoints and the files of interrupted saves");
  command.add("--verify", a->verify,
              "first compare all checksums of the checkpoints to keep; damaged ones do not count");
  command.add("--dry-run", a->dry_run, "print what would be removed, and remove nothing");
  command.add("--json", a->json, "print JSON");
  command.run([a] { prune(*a); });
}

}  // namespace tessera::cli

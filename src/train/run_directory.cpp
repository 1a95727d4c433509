#include "tessera/train/run_directory.hpp"

#include <unistd.h>

#include "tessera/checkpoint/directory.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

void make_writable(fs::path const& directory) {
  std::error_code failed;
  fs::create_directories(directory, failed);
  TESSERA_VALIDATE(!failed, IoError, "cannot make the output directory ", directory.string(), ": ", failed.message(),
                   "; choose another one with --output_dir");
  fs::path const probe = directory / concat(".write-test.", ::getpid());
  write_file_atomically(probe, "");
  fs::remove(probe, failed);
}

bool holds_other_files(fs::path const& directory) {
  for (auto const& entry : fs::directory_iterator(directory))
    if (entry.path().filename().string().front() != '.' && entry.path().filename() != "status.json") return true;
  return false;
}

bool asks_for_latest(std::string const& given) { return given == "true" || given == "True" || given == "latest" || given == "auto"; }

StartingPoint choose(TrainingArguments const& arguments) {
  fs::path const& directory = arguments.output_dir;
  make_writable(directory);
  if (!arguments.do_train) return {};
  std::string const& given = arguments.resume_from_checkpoint;
  bool const named = !given.empty() && !asks_for_latest(given) && given != "false" && given != "never";
  if (named) return {checkpoint::resolve_checkpoint(given), ""};
  if (given == "never" || given == "false" || (arguments.overwrite_output_dir && given.empty())) {
    TESSERA_VALIDATE(arguments.overwrite_output_dir || !holds_other_files(directory), UsageError, "the output directory ",
                     directory.string(), " is not empty; use --overwrite_output_dir, or another --output_dir");
    return {};
  }
  if (auto const found = checkpoint::find_latest(directory)) {
    std::string note = concat("going on from ", found->directory.string());
    if (!found->note.empty()) note += concat(" (", found->note, ")");
    return {found->directory, note};
  }
  TESSERA_VALIDATE(given != "true" && given != "True" && given != "latest", IoError, "--resume_from_checkpoint ", given,
                   ": there is no whole checkpoint in ", directory.string());
  TESSERA_VALIDATE(!holds_other_files(directory), UsageError, "the output directory ", directory.string(),
                   " is not empty and holds no checkpoint to go on from; use --overwrite_output_dir, or another --output_dir");
  return {};
}

}  // namespace

StartingPoint prepare_run_directory(TrainingArguments const& arguments, comm::Collectives& comm) {
  // rank 0 looks, the others learn: one rank's view of a shared directory, and one error for all
  std::string answer;
  if (comm.rank() == 0) {
    try {
      auto const start = choose(arguments);
      answer = "+" + start.checkpoint.string() + "\n" + start.note;
    } catch (Error const& e) {
      answer = concat("-", static_cast<int>(e.code()), " ", e.what());
    }
  }
  answer = comm::broadcast_bytes(comm, answer, 0);
  if (answer[0] == '-') {
    std::size_t const space = answer.find(' ');
    throw Error(static_cast<ExitCode>(std::stoi(answer.substr(1, space))), answer.substr(space + 1));
  }
  std::size_t const newline = answer.find('\n');
  return {answer.substr(1, newline - 1), answer.substr(newline + 1)};
}

void remove_former_run(fs::path const& directory) {
  std::error_code ignored;
  for (char const* name : {"checkpoints", "metrics.jsonl", "all_results.json", "train_results.json", "eval_results.json"})
    fs::remove_all(directory / name, ignored);
}

}  // namespace tessera::train

#pragma once
/// One start of the ranks: the launcher as a child process, and those of its processes that run on
/// this machine. None of them outlives it.

#include <sys/types.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace tessera::cli {

class JobStep {
 public:
  struct Options {
    std::vector<std::string> words;  ///< the launcher with its arguments
    std::string program;             ///< name of the ranks' program
    std::string slurm_job;           ///< inside a job of Slurm its id; the step's name is below
    std::string step_name;
  };
  /// What the launcher and the ranks write is passed on. If this process is killed, the launcher
  /// gets SIGTERM. @throws IoError
  explicit JobStep(Options options);
  /// Calls end().
  ~JobStep();
  JobStep(JobStep const&) = delete;
  JobStep& operator=(JobStep const&) = delete;

  /// The launcher's exit code once it has ended: 128 + signal when it was killed.
  std::optional<int> poll();
  /// Process ids of ranks on this machine.
  std::vector<pid_t> local_ranks() const;
  /// Sends a signal to the ranks of this machine. Where there are none, to the launcher, which
  /// passes it on.
  void signal_ranks(int number) const;
  /// Ends all ranks and the launcher, politely where it can clean up on other nodes.
  void end();
  /// The last part of that text, of both streams (Hydra's messages are on standard output); after
  /// end() with what was written last.
  std::string messages() const;

 private:
  void start(int standard_output, int standard_error);
  void pass_on(int from, int to);
  void cancel_slurm_step() const;

  Options options_;
  pid_t launcher_ = -1;
  std::optional<int> code_;
  mutable std::mutex mutex_;  ///< guards the two below
  std::string messages_;
  std::size_t closed_ = 0;  ///< streams that have ended
  std::condition_variable changed_;
  std::vector<std::thread> readers_;
};

/// Process ids of all descendants of this process.
std::vector<pid_t> descendants();

}  // namespace tessera::cli

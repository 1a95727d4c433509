#include "recovery/job_step.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "launch/run_program.hpp"
#include "tessera/core/clock.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/process.hpp"

namespace tessera::cli {
namespace fs = std::filesystem;
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kept_messages = 64 * 1024;
/// The kernel keeps this much of a program's name.
constexpr std::size_t name_length = 15;

std::string name_of_process(pid_t pid) {
  std::ifstream file(concat("/proc/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

std::vector<char*> words_of(std::vector<std::string> const& words) {
  std::vector<char*> argv;
  for (auto const& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  return argv;
}

void reap_children() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace

std::vector<pid_t> descendants() {
  std::multimap<std::int64_t, pid_t> children;
  std::error_code failed;
  for (fs::directory_iterator it("/proc", failed), end; !failed && it != end;
       it.increment(failed)) {
    std::string const name = it->path().filename().string();
    pid_t pid = 0;
    auto const [last, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || last != name.data() + name.size()) continue;
    if (auto const stat = process_stat(pid); stat && !stat->has_ended())
      children.emplace(stat->parent, pid);
  }
  std::vector<pid_t> found{::getpid()};
  for (std::size_t i = 0; i < found.size(); ++i)
    for (auto [it, end] = children.equal_range(found[i]); it != end; ++it)
      found.push_back(it->second);
  found.erase(found.begin());
  return found;
}

JobStep::JobStep(Options options) : options_(std::move(options)) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // ranks whose launcher was killed become children
  int output[2], errors[2];
  for (int* const pipe : {output, errors})
    TESSERA_VALIDATE(::pipe2(pipe, O_CLOEXEC) == 0, IoError,
                     with_errno("cannot make a pipe", errno));
  start(output[1], errors[1]);
  ::close(output[1]);
  ::close(errors[1]);
  readers_.emplace_back([this, from = output[0]] { pass_on(from, STDOUT_FILENO); });
  readers_.emplace_back([this, from = errors[0]] { pass_on(from, STDERR_FILENO); });
}

JobStep::~JobStep() {
  end();
  for (auto& reader : readers_) reader.join();
}

void JobStep::start(int standard_output, int standard_error) {
  auto const argv = words_of(options_.words);
  pid_t const parent = ::getpid();
  launcher_ = ::fork();
  TESSERA_VALIDATE(launcher_ >= 0, IoError, with_errno("cannot start " + options_.words[0], errno));
  if (launcher_ > 0) return;
  ::setpgid(0, 0);  // a terminal's Ctrl-C reaches the supervisor only
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  int const input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(standard_output, STDOUT_FILENO);
  ::dup2(standard_error, STDERR_FILENO);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

/// Until all writers have closed the pipe.
void JobStep::pass_on(int from, int to) {
  char text[4096];
  for (ssize_t count = 0; (count = ::read(from, text, sizeof text)) != 0;) {
    if (count < 0) {
      if (errno == EINTR) continue;
      break;
    }
    for (ssize_t done = 0, step = 0; done < count; done += step) {
      pollfd out{to, POLLOUT, 0};
      if (::poll(&out, 1, 1000) <= 0) break;  // nobody reads it: training continues
      step = ::write(to, text + done, static_cast<std::size_t>(count - done));
      if (step <= 0) break;
    }
    std::lock_guard const lock(mutex_);
    messages_.append(text, static_cast<std::size_t>(count));
    if (messages_.size() > kept_messages) messages_.erase(0, messages_.size() - kept_messages);
  }
  ::close(from);
  std::lock_guard const lock(mutex_);
  ++closed_;
  changed_.notify_all();
}

std::optional<int> JobStep::poll() {
  int status = 0;
  if (!code_ && ::waitpid(launcher_, &status, WNOHANG) == launcher_)
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return code_;
}

std::vector<pid_t> JobStep::local_ranks() const {
  auto ranks = descendants();
  std::string const name = fs::path(options_.program).filename().string().substr(0, name_length);
  std::erase_if(ranks, [&](pid_t pid) { return name_of_process(pid) != name; });
  return ranks;
}

void JobStep::signal_ranks(int number) const {
  auto const ranks = local_ranks();
  for (pid_t const rank : ranks) ::kill(rank, number);
  if (ranks.empty() && !code_) ::kill(launcher_, number);
}

/// srun that is killed leaves its step running. The controller acts immediately, but its answer
/// waits for nodes that are lost.
void JobStep::cancel_slurm_step() const {
  if (options_.slurm_job.empty()) return;
  std::istringstream steps(
      output_of({"squeue", "-h", "-s", "-j", options_.slurm_job, "-o", "%i %j"}, 10s));
  for (std::string id, name; steps >> id >> name;)
    if (name == options_.step_name) run_program({"scancel", "--signal=KILL", id}, 2s);
}

void JobStep::end() {
  if (!poll()) {
    cancel_slurm_step();
    for (pid_t const rank : local_ranks()) ::kill(rank, SIGKILL);
    ::kill(launcher_, SIGTERM);
    auto const started = Clock::now();
    // srun waits for nodes that are lost; its step has been canceled
    double const grace = options_.slurm_job.empty() ? 5.0 : 1.0;
    while (!poll() && seconds_since(started) < grace) std::this_thread::sleep_for(10ms);
    if (!poll()) ::kill(launcher_, SIGKILL);
  }
  while (!poll()) std::this_thread::sleep_for(1ms);
  // what is left of it has become a child of this process
  auto const started = Clock::now();  // a process in a hung system call stays
  for (auto left = descendants(); !left.empty() && seconds_since(started) < 30.0;
       left = descendants()) {
    for (pid_t const pid : left) ::kill(pid, SIGKILL);
    std::this_thread::sleep_for(1ms);
    reap_children();
  }
  reap_children();  // ranks that ended before their launcher did
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, 1s, [this] { return closed_ == readers_.size(); });
}

std::string JobStep::messages() const {
  std::lock_guard const lock(mutex_);
  return messages_;
}

}  // namespace tessera::cli

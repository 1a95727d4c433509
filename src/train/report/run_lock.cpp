#include "tessera/train/report/run_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <thread>

#include "tessera/core/clock.hpp"
#include "tessera/core/config_tree.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/topology/launcher.hpp"
#include "tessera/train/report/run_directory.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

using Clock = std::chrono::steady_clock;

/// When a process was started, in clock ticks since boot; empty when it has ended.
std::string start_of(std::int64_t pid) {
  auto const stat = process_stat(pid);
  return stat && !stat->has_ended() ? std::to_string(stat->started) : "";
}

/// Boot and process namespace: process ids are comparable within one.
std::string process_space() {
  std::error_code failed;
  return concat(boot_id(), " ", fs::read_symlink("/proc/self/ns/pid", failed).string());
}

ConfigTree own_entry(std::string const& id) {
  auto const facts = topology::launcher_facts(topology::process_environment());
  ConfigTree entry;
  entry.set("host", host_name())
      .set("pid", std::int64_t{::getpid()})
      .set("process_start", start_of(::getpid()))
      .set("process_space", process_space());
  char const* const attempt = std::getenv("TESSERA_ATTEMPT");
  if (std::string const text = attempt ? attempt : ""; text.rfind(' ') != std::string::npos)
    entry.set("supervisor", text.substr(0, text.rfind(' ')))
        .set("attempt", std::atoi(text.c_str() + text.rfind(' ')));
  return entry.set("job", facts.job_id)
      .set("restart", facts.restart_count)
      .set("started", utc_timestamp())
      .set("id", id);
}

/// All heartbeats of an entry have the same length, because each overwrites the last.
std::string text_of(ConfigTree const& entry, std::uint64_t beat) {
  return ConfigTree(entry).set("beat", fmt::format("{:012}", beat)).dump() + "\n";
}

/// Reopens the file each time, because network file systems revalidate it on open.
std::optional<std::string> read(fs::path const& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

ConfigTree parse(std::string const& text) {
  try {
    return ConfigTree::parse(text, "lock");
  } catch (Error const&) {
    return ConfigTree::object();  // killed between creating and writing
  }
}

std::string describe(ConfigTree const& owner) {
  if (!owner.contains("host")) return "a job that has not written its entry";
  std::string const job = owner.get_string("job", "");
  return concat("process ", owner.get_int("pid", 0), " on host ", owner.get_string("host", "?"),
                job.empty() ? "" : ", job " + job, ", started ", owner.get_string("started", "?"));
}

/// Serializes takeovers where the file system has locks for directories; elsewhere best effort.
class TakeoverLock {
 public:
  TakeoverLock(fs::path const& directory, std::chrono::milliseconds patience)
      : descriptor_(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    auto const end = Clock::now() + patience;
    while (descriptor_ >= 0 && ::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 &&
           errno == EWOULDBLOCK && Clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ~TakeoverLock() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  TakeoverLock(TakeoverLock const&) = delete;
  TakeoverLock& operator=(TakeoverLock const&) = delete;

 private:
  int descriptor_;
};

enum class Life { alive, dead, unknown };
Life life_of(ConfigTree const& owner, ConfigTree const& own_entry) {
  std::string const job = own_entry.get_string("job", "");
  bool const requeued = !job.empty() && owner.get_string("job", "") == job &&
                        owner.get_int("restart", 0) < own_entry.get_int("restart", 0);
  if (requeued) return Life::dead;  // the batch system ends a job before it starts it again
  std::string const supervisor = own_entry.get_string("supervisor", "");
  if (!supervisor.empty() && owner.get_string("supervisor", "") == supervisor &&
      owner.get_int("attempt", 0) < own_entry.get_int("attempt", 0))
    return Life::dead;  // `tessera run` has ended it; on a node that is lost it finds out itself
  if (owner.get_string("host", "") != host_name()) return Life::unknown;
  std::string const space = owner.get_string("process_space", ""), own = process_space();
  if (space != own)
    return space.substr(0, space.find(' ')) == own.substr(0, own.find(' '))
               ? Life::unknown
               : Life::dead;  // another boot: its processes have ended
  std::string const start = owner.get_string("process_start", "");
  return !start.empty() && start_of(owner.get_int("pid", -1)) == start ? Life::alive : Life::dead;
}

/// Whether the file changes within @p patience. If it disappears, the owner has ended.
bool beats_within(fs::path const& file, std::string const& text, RunLock::Timing timing) {
  auto const end = Clock::now() + timing.patience;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::min(timing.beat / 4, std::chrono::milliseconds(1000)));
    auto const now = read(file);
    if (!now) return false;
    if (*now != text) return true;
  }
  return false;
}

}  // namespace

std::optional<LockOwner> find_owner(fs::path const& directory, std::chrono::milliseconds wait) {
  fs::path const file = directory / ".lock";
  auto const text = read(file);
  if (!text) return std::nullopt;
  ConfigTree const owner = parse(*text);
  Life const life = life_of(owner, ConfigTree::object());
  bool const alive = life == Life::alive ||
                     (life == Life::unknown && beats_within(file, *text, {.patience = wait}));
  return LockOwner{alive, describe(owner)};
}

struct RunLock::Impl {
  fs::path file;
  Timing timing;
  std::string id = new_run_id();
  ConfigTree entry = own_entry(id);
  int descriptor = -1;
  std::string replaced;
  std::atomic<bool> held{true};
  std::mutex mutex;
  std::condition_variable changed;
  bool ending = false;
  std::thread beats;

  ~Impl() {
    if (descriptor >= 0) ::close(descriptor);
  }

  /// False if the file exists already.
  bool create() {
    descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == EEXIST) return false;
    if (descriptor < 0) throw IoError(path_error("cannot create", file, errno));
    write_all(descriptor, text_of(entry, 0), file);
    ::fsync(descriptor);
    return true;
  }

  [[noreturn]] void refuse(ConfigTree const& owner) const {
    throw DirectoryInUse(concat("the output directory ", file.parent_path().string(),
                                " is in use by ", describe(owner),
                                "; wait until it has ended, stop it, or use another --output_dir"));
  }

  /// Renames the file of an owner that has ended; of several jobs that try, one finds the text that
  /// it has checked.
  void remove_stale(std::string const& checked) const {
    TakeoverLock const lock(file.parent_path(), timing.patience);
    if (read(file) != checked) return;  // another job was faster
    fs::path const aside = file.parent_path() / concat(".lock.stale.", id);
    if (::rename(file.c_str(), aside.c_str()) != 0) return;  // another job was faster
    auto const text = read(aside);
    if (text != checked)
      (void)::link(aside.c_str(), file.c_str());  // the file of a new owner: restore it
    ::unlink(aside.c_str());
    if (text && *text != checked) refuse(parse(*text));
  }

  void acquire() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      if (create()) return;
      auto const text = read(file);
      if (!text) continue;
      ConfigTree const owner = parse(*text);
      Life const life = life_of(owner, entry);
      if (life == Life::alive) refuse(owner);
      if (life == Life::unknown) {
        log::info(concat("the output directory is locked by ", describe(owner),
                         "; it is taken over after ", timing.patience.count() / 1000,
                         " s without a heartbeat"));
        if (beats_within(file, *text, timing)) refuse(parse(read(file).value_or(*text)));
      }
      replaced = describe(owner);
      remove_stale(*text);
    }
    refuse(parse(read(file).value_or("")));
  }

  /// A file that cannot be read, or was removed by hand, does not belong to another job.
  bool is_mine() const {
    auto const text = read(file);
    return !text || parse(*text).get_string("id", "") == id;
  }
  bool is_gone() const {
    std::error_code failed;
    return fs::status(file, failed).type() == fs::file_type::not_found;
  }
  void create_again() {
    ::close(descriptor);
    try {
      held = create();
    } catch (IoError const& e) {
      log::warning(concat("the lock of the output directory was removed: ", e.what()));
    }
  }

  void keep_beating() {
    std::unique_lock lock(mutex);
    for (std::uint64_t beat = 1; !changed.wait_for(lock, timing.beat, [&] { return ending; });
         ++beat) {
      if (!is_mine()) {
        held = false;
        return;
      }
      if (is_gone()) create_again();
      if (!held) return;
      std::string const text = text_of(entry, beat);
      // a failed heartbeat counts as a late one
      if (::pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()))
        (void)::fdatasync(descriptor);
    }
  }
};

RunLock::RunLock(fs::path const& directory, Timing timing) : impl_(std::make_unique<Impl>()) {
  impl_->file = directory / ".lock";
  impl_->timing = timing;
  impl_->acquire();
  impl_->beats = std::thread([impl = impl_.get()] { impl->keep_beating(); });
}

RunLock::~RunLock() {
  {
    std::lock_guard const lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->changed.notify_one();
  impl_->beats.join();
  if (impl_->held && impl_->is_mine()) (void)::unlink(impl_->file.c_str());
}

bool RunLock::held() const { return impl_->held; }
std::string const& RunLock::replaced() const { return impl_->replaced; }

}  // namespace tessera::train

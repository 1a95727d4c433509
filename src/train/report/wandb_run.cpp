#include "tessera/train/report/tracker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/words.hpp"
#include "tessera/train/report/protobuf.hpp"
#include "tessera/train/report/version.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
using namespace protobuf;
namespace {

// Fields of wandb.proto's Record, and those of a history row's item.
constexpr int record_number = 1, record_history = 2, record_summary = 3, record_metric = 12,
              record_run = 17, record_exit = 18, record_header = 21;
constexpr int item_key = 2, item_value = 16;
constexpr char global_step[] = "train/global_step";

std::string const file_header = std::string(":W&B\xE1\xBE", 6) + '\0';
constexpr std::size_t block_bytes = 32768, fragment_header = 7;
enum class Fragment : char { full = 1, first, middle, last };

/// zlib's CRC-32.
std::uint32_t checksum(std::string const& bytes) { return crc32(bytes, 0xEDB88320u); }

/// The fragments of @p data in a log that has @p at bytes: checksum, length, type, bytes. None
/// crosses the border of a block.
std::string log_record(std::string const& data, std::size_t at) {
  std::string out;
  bool first = true;
  for (std::size_t done = 0; first || done < data.size();) {
    std::size_t room = block_bytes - (at + out.size()) % block_bytes;
    if (room < fragment_header) {
      out.append(room, '\0');
      room = block_bytes;
    }
    std::size_t const length = std::min(room - fragment_header, data.size() - done);
    bool const last = done + length == data.size();
    auto const type = first ? (last ? Fragment::full : Fragment::first)
                            : (last ? Fragment::last : Fragment::middle);
    std::string const content = static_cast<char>(type) + data.substr(done, length);
    out += little_endian(checksum(content)) + little_endian(static_cast<std::uint16_t>(length)) +
           content;
    done += length;
    first = false;
  }
  return out;
}

/// The next record of a log, and where it ends; nothing at its end and where it is damaged.
std::optional<std::string> next_record(std::string const& log, std::size_t& at) {
  std::string data;
  std::size_t place = at;
  for (bool complete = false; !complete;) {
    if (std::size_t const room = block_bytes - place % block_bytes; room < fragment_header)
      place += room;
    if (place + fragment_header > log.size()) return {};
    std::uint32_t expected = 0;
    std::uint16_t length = 0;
    std::memcpy(&expected, log.data() + place, sizeof expected);
    std::memcpy(&length, log.data() + place + sizeof expected, sizeof length);
    if (place + fragment_header + length > log.size()) return {};
    std::string const content = log.substr(place + fragment_header - 1, length + 1u);
    if (checksum(content) != expected) return {};
    auto const type = static_cast<Fragment>(content[0]);
    complete = type == Fragment::full || type == Fragment::last;
    data += content.substr(1);
    place += fragment_header + length;
  }
  at = place;
  return data;
}

/// The content of a record behind its number.
std::string_view body_of(std::string_view record) {
  std::size_t at = 1;
  while (at < record.size() && (record[at] & 0x80)) ++at;
  return record.substr(std::min(at + 1, record.size()));
}

/// The global step in a history row that Tessera has written.
std::int64_t step_of(std::string_view row) {
  std::string const name = text_field(item_key, global_step) + key(item_value, Wire::text);
  auto const at = row.find(name);
  if (at == std::string_view::npos) return 0;
  return std::strtoll(std::string(row.substr(at + name.size() + 1, 20)).c_str(), nullptr, 10);
}

/// What a resumed run keeps of its log.
struct Kept {
  std::size_t bytes = 0;
  std::uint64_t records = 0;
  std::int64_t rows = 0;
};

Kept kept_before(fs::path const& file, std::int64_t first_step) {
  std::ifstream in(file, std::ios::binary);
  std::string const log{std::istreambuf_iterator<char>(in), {}};
  if (!log.starts_with(file_header)) return {};
  Kept kept{file_header.size(), 0, 0};
  for (std::size_t at = kept.bytes; auto const record = next_record(log, at);) {
    auto const body = body_of(*record);
    bool const is_row = body.starts_with(key(record_history, Wire::text));
    if (body.starts_with(key(record_exit, Wire::text)) || (is_row && step_of(body) >= first_step))
      break;
    kept = {at, kept.records + 1, kept.rows + (is_row ? 1 : 0)};
  }
  return kept;
}

std::string json_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return ConfigTree(value).dump();
}

std::string given_field(int field, std::string const& text) {
  return text.empty() ? text : text_field(field, text);
}

std::string timestamp(std::chrono::system_clock::time_point time) {
  return varint_field(
      1, static_cast<std::uint64_t>(
             std::chrono::duration_cast<std::chrono::seconds>(time.time_since_epoch()).count()));
}

/// The id in the name of a run's directory, offline-run-YYYYmmdd_HHMMSS-ID; empty for other names.
std::string id_in(fs::path const& directory) {
  constexpr std::string_view before_id = "offline-run-YYYYmmdd_HHMMSS-";
  std::string const name = directory.filename().string();
  bool const is_run = name.starts_with("offline-run-") && name.size() > before_id.size();
  return is_run ? name.substr(before_id.size()) : "";
}

/// The newest run's directory below @p base with the id @p given, or where that is empty with an id
/// of this output_dir, which begins with @p id_begin.
fs::path newest_run(fs::path const& base, std::string const& given, std::string const& id_begin) {
  fs::path newest;
  std::error_code ignored;
  for (auto const& entry : fs::directory_iterator(base, ignored)) {
    std::string const id = id_in(entry.path());
    bool const matches = given.empty() ? id.starts_with(id_begin) : id == given;
    if (matches && entry.path().filename() > newest.filename()) newest = entry.path();
  }
  return newest;
}

class WandbRun : public Tracker {
 public:
  WandbRun(TrackedRun const& run, std::int64_t first_step) {
    RunId const made = run_id(run.output_dir, 4);
    std::string const given = environment_variable("WANDB_RUN_ID");
    fs::path const base = environment_variable("WANDB_DIR", run.output_dir.string()) + "/wandb";
    if (first_step > 1) {
      directory_ = newest_run(base, given, made.of_directory);
      id_ = id_in(directory_);
    }
    Kept kept;
    if (!directory_.empty()) kept = kept_before(file(), first_step);
    if (kept.records == 0) {
      id_ = given.empty() ? made.text() : given;
      directory_ = base / fmt::format("offline-run-{}-{}", time_text(), id_);
    }
    open(kept);
    if (kept.records == 0) begin(run);
    log::info(concat("W&B: `wandb sync ", directory_.string(), "` uploads this run"));
  }
  ~WandbRun() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void write(std::int64_t step, std::vector<Scalar> const& scalars) override {
    std::vector<Item> items;
    for (auto const& scalar : scalars) items.push_back({scalar.tag, json_number(scalar.value)});
    row(step, std::move(items));
  }
  void write_text(std::int64_t step, std::string const& tag, std::string const& text) override {
    row(step, {{tag, ConfigTree(text).dump()}});
  }
  void end() override {
    append(record_exit, varint_field(2, static_cast<std::uint64_t>(seconds())));
  }

 private:
  using Item = std::pair<std::string, std::string>;  ///< name, value as JSON

  static std::string time_text() {
    std::time_t const now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof text, "%Y%m%d_%H%M%S", std::localtime(&now));
    return text;
  }
  fs::path file() const { return directory_ / ("run-" + id_ + ".wandb"); }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::system_clock::now() - started_).count();
  }

  void open(Kept const& kept) {
    std::error_code error;
    fs::create_directories(directory_ / "files", error);
    TESSERA_VALIDATE(!error, IoError, "cannot create ", directory_.string(), ": ", error.message(),
                     "; set WANDB_DIR to a directory that can be written");
    descriptor_ = ::open(file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor_ < 0 || ::ftruncate(descriptor_, static_cast<off_t>(kept.bytes)) != 0)
      throw IoError(path_error("cannot open", file(), errno));
    fs::remove(file().string() + ".synced", error);
    bytes_ = kept.bytes;
    records_ = kept.records;
    rows_ = kept.rows;
  }

  /// The header and what the run is: Record.header, Record.run, and the axis of all values.
  void begin(TrackedRun const& run) {
    put(file_header);
    append(record_header,
           text_field(1, text_field(1, "tessera " + build_versions().at("tessera").as_string()) +
                             text_field(2, "0.70.0")));
    std::string config, tags;
    for (auto const& [name, value] : run.parameters.as_object())
      config += text_field(1, text_field(1, name) + text_field(16, value.dump()));
    for (auto const& tag : split(environment_variable("WANDB_TAGS"), ','))
      tags += given_field(10, std::string(tag));
    append(record_run, text_field(1, id_) + given_field(2, environment_variable("WANDB_ENTITY")) +
                           text_field(3, environment_variable("WANDB_PROJECT", "huggingface")) +
                           text_field(4, config) +
                           given_field(6, environment_variable("WANDB_RUN_GROUP")) +
                           given_field(7, environment_variable("WANDB_JOB_TYPE")) +
                           text_field(8, environment_variable("WANDB_NAME", run.name)) +
                           given_field(9, environment_variable("WANDB_NOTES")) + tags +
                           text_field(13, host_name()) + text_field(17, timestamp(started_)));
    std::string const defined = varint_field(3, 1), step_sync = varint_field(1, 1);
    append(record_metric, text_field(1, global_step) + text_field(6, defined));
    append(record_metric,
           text_field(2, "*") + text_field(4, global_step) + text_field(6, step_sync + defined));
  }

  /// A history row and the summary, which has the newest value of each name.
  void row(std::int64_t step, std::vector<Item> items) {
    double const now =
        std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    items.insert(items.end(), {{global_step, std::to_string(step)},
                               {"_timestamp", json_number(now)},
                               {"_runtime", json_number(seconds())},
                               {"_step", std::to_string(rows_)}});
    std::string content;
    for (auto const& [name, value] : items)
      content += text_field(1, text_field(item_key, name) + text_field(item_value, value));
    append(record_history,
           content + text_field(2, varint_field(1, static_cast<std::uint64_t>(rows_))));
    append(record_summary, content);
    ++rows_;
  }

  void append(int field, std::string const& content) {
    ++records_;
    put(log_record(varint_field(record_number, records_) + text_field(field, content), bytes_));
  }
  void put(std::string const& bytes) {
    try {
      write_all(descriptor_, bytes, file());
      bytes_ += bytes.size();
    } catch (IoError const& e) {
      log::warning(concat("a record for W&B could not be written: ", e.what()));
    }
  }

  std::string id_;
  fs::path directory_;
  int descriptor_ = -1;
  std::size_t bytes_ = 0;  ///< length of the log
  std::uint64_t records_ = 0;
  std::int64_t rows_ = 0;
  std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
};

}  // namespace

std::unique_ptr<Tracker> wandb_run(TrackedRun const& run, std::int64_t first_step) {
  return std::make_unique<WandbRun>(run, first_step);
}

}  // namespace tessera::train

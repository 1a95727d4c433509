#include "sequences/sequence_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/process.hpp"

namespace tessera::data {
namespace {

constexpr char magic[8] = {'T', 'S', 'R', 'B', 'L', 'O', 'C', 'K'};
constexpr std::uint32_t byte_order_mark = 0x01020304;

std::uint64_t header_sum(SequenceFileHeader const& header) {
  return detail::xxh3(&header, offsetof(SequenceFileHeader, header_sum));
}

/// Closes a descriptor at the end of the scope; a mapping outlives it.
struct Descriptor {
  int fd;
  ~Descriptor() { ::close(fd); }
};

std::shared_ptr<void const> map_bytes(int fd, std::size_t bytes,
                                      std::filesystem::path const& file) {
  void* const start = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  TESSERA_VALIDATE(start != MAP_FAILED, IoError, with_errno("cannot map " + file.string(), errno));
  return {start, [bytes](void const* p) { ::munmap(const_cast<void*>(p), bytes); }};
}

/// Reads the first @p bytes bytes.
void read_start(int fd, void* out, std::size_t bytes, std::filesystem::path const& file) {
  for (std::size_t done = 0; done < bytes;) {
    ssize_t const got =
        ::pread(fd, static_cast<char*>(out) + done, bytes - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    TESSERA_VALIDATE(got >= 0, IoError, path_error("cannot read", file, errno));
    TESSERA_VALIDATE(got > 0, DataError, file.string(), " ends after ", done,
                     " bytes; remove it, and Tessera builds it again");
    done += static_cast<std::size_t>(got);
  }
}

std::size_t size_of_file(int fd, std::filesystem::path const& file) {
  struct stat about {};
  TESSERA_VALIDATE(::fstat(fd, &about) == 0, IoError, path_error("cannot read", file, errno));
  auto const bytes = static_cast<std::size_t>(about.st_size);
  TESSERA_VALIDATE(bytes >= sizeof(SequenceFileHeader), DataError, file.string(), " has only ",
                   bytes, " bytes; it is not a file of token sequences");
  return bytes;
}

/// Why the header is not valid, or an empty string.
std::string fault_of(SequenceFileHeader const& h, std::size_t bytes, std::uint64_t request_key) {
  if (std::memcmp(h.magic, magic, sizeof magic) != 0) return "is not a file of token sequences";
  if (h.version != SequenceFile::version || h.byte_order != byte_order_mark)
    return "was written by another version of Tessera or another machine";
  if (header_sum(h) != h.header_sum) return "is damaged: its header does not match its checksum";
  if (h.request_key != request_key) return "was made for another text, tokenizer or block size";
  if (h.length < 1 || h.count < 1 ||
      (bytes - sizeof h) / sizeof(std::int32_t) / static_cast<std::size_t>(h.length) !=
          static_cast<std::size_t>(h.count))
    return concat("is cut short: ", bytes, " bytes are not ", h.count, " sequences of ", h.length);
  return "";
}

}  // namespace

TokenSequences SequenceFile::sequences_in(std::shared_ptr<void const> mapping,
                                          SequenceFileHeader const& header,
                                          std::filesystem::path const& file) {
  TokenSequences out;
  out.ids_ = reinterpret_cast<std::int32_t const*>(static_cast<char const*>(mapping.get()) +
                                                   sizeof header);
  out.mapping_ = std::move(mapping);
  out.count_ = header.count;
  out.length_ = header.length;
  out.records_ = header.records;
  out.tokens_ = header.tokens;
  out.max_id_ = header.max_id;
  out.fingerprint_ = header.fingerprint;
  out.file_ = file;
  return out;
}

TokenSequences SequenceFile::open(std::filesystem::path const& file, std::uint64_t request_key,
                                  Check check) {
  Descriptor const in{::open(file.c_str(), O_RDONLY | O_CLOEXEC)};
  TESSERA_VALIDATE(in.fd >= 0, IoError, path_error("cannot read", file, errno));
  std::size_t const bytes = size_of_file(in.fd, file);
  auto mapping = map_bytes(in.fd, bytes, file);
  SequenceFileHeader header;
  std::memcpy(&header, mapping.get(), sizeof header);
  std::string const fault = fault_of(header, bytes, request_key);
  TESSERA_VALIDATE(fault.empty(), DataError, file.string(), " ", fault);
  TESSERA_VALIDATE(check == Check::header ||
                       detail::xxh3(static_cast<char const*>(mapping.get()) + sizeof header,
                                    bytes - sizeof header) == header.ids_sum,
                   DataError, file.string(), " is damaged: its ids do not match their checksum");
  return sequences_in(std::move(mapping), header, file);
}

TokenSequences SequenceFile::open(int descriptor, std::filesystem::path const& file) {
  Descriptor const in{descriptor};
  SequenceFileHeader header;
  read_start(in.fd, &header, sizeof header, file);
  std::size_t const bytes = sizeof header + static_cast<std::size_t>(header.count) *
                                                static_cast<std::size_t>(header.length) *
                                                sizeof(std::int32_t);
  std::string const fault = fault_of(header, bytes, header.request_key);
  TESSERA_VALIDATE(fault.empty(), DataError, file.string(), " ", fault);
  return sequences_in(map_bytes(in.fd, bytes, file), header, file);
}

SequenceWriter::SequenceWriter(std::filesystem::path file, std::int64_t length)
    : file_(std::move(file)) {
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  TESSERA_VALIDATE(!error, IoError, "cannot create the directory ", file_.parent_path().string(),
                   ": ", error.message());
  static std::atomic<int> writers{0};
  std::string const name =
      concat(file_.string(), ".tmp.", host_name(), "-", ::getpid(), "-", writers++);
  int const fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  TESSERA_VALIDATE(fd >= 0, IoError, path_error("cannot write in", file_.parent_path(), errno));
  temporary_ = name;
  out_ = ::fdopen(fd, "wb");
  std::memcpy(header_.magic, magic, sizeof magic);
  header_.version = SequenceFile::version;
  header_.byte_order = byte_order_mark;
  header_.length = length;
  header_.max_id = -1;
  write(&header_, sizeof header_);
}

SequenceWriter::~SequenceWriter() {
  if (out_) std::fclose(out_);
  std::error_code ignored;
  if (!temporary_.empty()) std::filesystem::remove(temporary_, ignored);
}

void SequenceWriter::write(void const* bytes, std::size_t size) {
  TESSERA_VALIDATE(
      out_ && std::fwrite(bytes, 1, size, out_) == size, IoError,
      with_errno(concat("cannot write ", size, " bytes to ", temporary_.string()), errno),
      "; free some space or choose another cache folder");
}

void SequenceWriter::append(std::span<std::int32_t const> ids) {
  if (ids.empty()) return;
  write(ids.data(), ids.size_bytes());
  ids_sum_.update(ids.data(), ids.size_bytes());
  header_.count += static_cast<std::int64_t>(ids.size()) / header_.length;
  header_.max_id = std::max(header_.max_id, *std::ranges::max_element(ids));
}

void SequenceWriter::commit(std::int64_t records, std::int64_t tokens, std::uint64_t request_key,
                            std::uint64_t fingerprint) {
  header_.records = records;
  header_.tokens = tokens;
  header_.request_key = request_key;
  header_.fingerprint = fingerprint;
  header_.ids_sum = ids_sum_.digest();
  header_.header_sum = header_sum(header_);
  TESSERA_VALIDATE(std::fseek(out_, 0, SEEK_SET) == 0, IoError,
                   with_errno("cannot write " + temporary_.string(), errno));
  write(&header_, sizeof header_);
  bool const on_disk = std::fflush(out_) == 0 && ::fsync(::fileno(out_)) == 0;
  int const reason = errno;
  bool const closed = std::fclose(std::exchange(out_, nullptr)) == 0;
  TESSERA_VALIDATE(on_disk && closed, IoError,
                   with_errno("cannot write " + temporary_.string(), on_disk ? errno : reason));
  std::error_code error;
  std::filesystem::rename(temporary_, file_, error);
  TESSERA_VALIDATE(!error, IoError, "cannot rename ", temporary_.string(), " to ", file_.string(),
                   ": ", error.message());
  temporary_.clear();
}

}  // namespace tessera::data

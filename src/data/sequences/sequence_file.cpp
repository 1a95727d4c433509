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
#include "tokenizer/bpe.hpp"

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

/// Bytes of the ids of examples; the offsets follow.
std::size_t bytes_of_ids(std::int64_t words) {
  return (static_cast<std::size_t>(words) * sizeof(std::int32_t) + 7) / 8 * 8;
}

/// Bytes of a file by its header.
std::size_t bytes_of(SequenceFileHeader const& h) {
  if (h.words == 0)
    return sizeof h + static_cast<std::size_t>(h.count) * static_cast<std::size_t>(h.length) *
                          sizeof(std::int32_t);
  return sizeof h + bytes_of_ids(h.words) +
         (static_cast<std::size_t>(h.count) + 1) * sizeof(std::int64_t);
}

/// Why the header is not valid, or an empty string.
std::string fault_of(SequenceFileHeader const& h, std::size_t bytes, std::uint64_t request_key) {
  if (std::memcmp(h.magic, magic, sizeof magic) != 0) return "is not a file of token sequences";
  if (h.version != SequenceFile::version || h.byte_order != byte_order_mark)
    return "was written by another version of Tessera or another machine";
  if (header_sum(h) != h.header_sum) return "is damaged: its header does not match its checksum";
  if (h.request_key != request_key) return "was made for another text, tokenizer or block size";
  constexpr std::int64_t most = std::int64_t{1} << 40;
  if (h.length < 1 || h.count < 1 || h.words < 0 || h.words > most || h.count > most ||
      (h.words == 0
           ? (bytes - sizeof h) / sizeof(std::int32_t) / static_cast<std::size_t>(h.length) !=
                 static_cast<std::size_t>(h.count)
           : bytes != bytes_of(h)))
    return concat("is cut short: ", bytes, " bytes are not ", h.count, " sequences of ", h.length);
  return "";
}

}  // namespace

TokenSequences SequenceFile::sequences_in(std::shared_ptr<void const> mapping,
                                          SequenceFileHeader const& header,
                                          std::filesystem::path const& file) {
  TokenSequences out;
  char const* const ids = static_cast<char const*>(mapping.get()) + sizeof header;
  out.ids_ = reinterpret_cast<std::int32_t const*>(ids);
  if (header.words > 0) {
    out.offsets_ = reinterpret_cast<std::int64_t const*>(ids + bytes_of_ids(header.words));
    for (std::int64_t i = 0; i <= header.count; ++i)
      TESSERA_VALIDATE(out.offsets_[i] >= (i == 0 ? 0 : out.offsets_[i - 1] + 1) &&
                           out.offsets_[i] <= header.words,
                       DataError, file.string(), " is damaged: example ", i,
                       " does not follow the one before it; remove the file");
  }
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
  std::size_t const bytes = bytes_of(header);
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

void SequenceWriter::append_example(std::span<std::int32_t const> tokens) {
  if (tokens.empty()) return;
  write(tokens.data(), tokens.size_bytes());
  ids_sum_.update(tokens.data(), tokens.size_bytes());
  auto const length = static_cast<std::int64_t>(tokens.size());
  if (offsets_.empty()) {
    offsets_.push_back(0);
    header_.length = 0;
  }
  offsets_.push_back(offsets_.back() + length);
  ++header_.count;
  header_.length = std::max(header_.length, length);
  header_.words += length;
  for (std::int32_t const token : tokens)
    header_.max_id = std::max(header_.max_id, token & token_id_bits);
}

void SequenceWriter::commit(std::int64_t records, std::int64_t tokens, std::uint64_t request_key,
                            std::uint64_t fingerprint) {
  header_.records = records;
  header_.tokens = tokens;
  if (!offsets_.empty()) {
    std::int32_t const padding = 0;
    auto const put = [&](void const* bytes, std::size_t size) {
      write(bytes, size);
      ids_sum_.update(bytes, size);
    };
    put(&padding, bytes_of_ids(header_.words) -
                      static_cast<std::size_t>(header_.words) * sizeof(std::int32_t));
    put(offsets_.data(), offsets_.size() * sizeof offsets_[0]);
  }
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

namespace tessera::data::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t llmc_header_bytes = 1024;
constexpr std::int32_t llmc_gpt2 = 20240520, llmc_llama3 = 20240801;
constexpr char megatron_magic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr std::int64_t megatron_header_bytes = 34;

struct Mapping {
  std::shared_ptr<void const> start;
  std::int64_t bytes = 0;
};

Mapping map_file(fs::path const& file) {
  int const fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  TESSERA_VALIDATE(fd >= 0, IoError, path_error("cannot read", file, errno));
  struct stat about {};
  int const status = ::fstat(fd, &about);
  auto const bytes = static_cast<std::size_t>(about.st_size);
  void* const start =
      status == 0 && bytes > 0 ? ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
  int const reason = errno;
  ::close(fd);
  TESSERA_VALIDATE(status != 0 || bytes > 0, DataError, file.string(), " is empty");
  TESSERA_VALIDATE(start != MAP_FAILED, IoError, path_error("cannot map", file, reason));
  return {{start, [bytes](void const* p) { ::munmap(const_cast<void*>(p), bytes); }},
          static_cast<std::int64_t>(bytes)};
}

template <class T>
T value_at(void const* start, std::int64_t offset) {
  T value;
  std::memcpy(&value, static_cast<char const*>(start) + offset, sizeof value);
  return value;
}

}  // namespace

bool is_token_file(fs::path const& file) {
  return file.extension() == ".bin" || file.extension() == ".idx";
}

TokenFile::TokenFile(fs::path const& file) : file_(fs::path(file).replace_extension(".bin")) {
  Mapping mapped = map_file(file_);
  mapping_ = std::move(mapped.start);
  file_bytes_ = mapped.bytes;
  fs::path const index = fs::path(file).replace_extension(".idx");
  fs::exists(index) ? open_megatron(index) : open_llmc();
}

void TokenFile::open_llmc() {
  std::int32_t const magic =
      file_bytes_ >= llmc_header_bytes ? value_at<std::int32_t>(mapping_.get(), 0) : 0;
  TESSERA_VALIDATE(magic == llmc_gpt2 || magic == llmc_llama3, ConfigError, file_.string(),
                   " is neither llm.c's (no header with ", llmc_gpt2, " or ", llmc_llama3,
                   ") nor Megatron's (no ", fs::path(file_).replace_extension(".idx").string(),
                   "); write one with tessera tokenize --output");
  type_ = magic == llmc_gpt2 ? Type::u16 : Type::u32;
  tokens_ = value_at<std::int32_t>(mapping_.get(), 8);
  documents_ = 1;
  ids_ = static_cast<char const*>(mapping_.get()) + llmc_header_bytes;
  TESSERA_VALIDATE(tokens_ > 0 && file_bytes_ == llmc_header_bytes + tokens_ * width(type_),
                   DataError, file_.string(), " is damaged or cut short: its header names ",
                   tokens_, " tokens of ", width(type_), " bytes, and the file has ", file_bytes_,
                   " bytes");
}

TokenFile::Type TokenFile::type_of(int code, fs::path const& index) {
  switch (code) {
    case 1:
      return Type::u8;
    case 2:
      return Type::i8;
    case 3:
      return Type::i16;
    case 4:
      return Type::i32;
    case 5:
      return Type::i64;
    case 8:
      return Type::u16;
    default:
      throw DataError(concat(index.string(), " names the type ", code,
                             "; token ids are integers: 1 to 5, or 8"));
  }
}

void TokenFile::open_megatron(fs::path const& index) {
  Mapping const mapped = map_file(index);
  void const* const start = mapped.start.get();
  TESSERA_VALIDATE(mapped.bytes >= megatron_header_bytes &&
                       std::memcmp(start, megatron_magic, sizeof megatron_magic) == 0 &&
                       value_at<std::uint64_t>(start, 9) == 1,
                   DataError, index.string(),
                   " is not an index of Megatron's version 1 (MMIDIDX); write it again");
  type_ = type_of(value_at<std::uint8_t>(start, 17), index);
  auto const sequences = value_at<std::int64_t>(start, 18),
             borders = value_at<std::int64_t>(start, 26);
  std::int64_t const most = mapped.bytes / 8;
  TESSERA_VALIDATE(sequences > 0 && sequences <= most && borders > 0 && borders <= most &&
                       mapped.bytes == megatron_header_bytes + 12 * sequences + 8 * borders,
                   DataError, index.string(), " is damaged or cut short: ", mapped.bytes,
                   " bytes are not ", sequences, " sequences in ", borders - 1, " documents");
  std::int64_t const offsets = megatron_header_bytes + 4 * sequences;
  for (std::int64_t i = 0; i < sequences; ++i) {
    auto const length = value_at<std::int32_t>(start, megatron_header_bytes + 4 * i);
    auto const offset = value_at<std::int64_t>(start, offsets + 8 * i);
    TESSERA_VALIDATE(length >= 0 && offset == tokens_ * width(type_), DataError, index.string(),
                     ": sequence ", i, " with ", length, " tokens begins at byte ", offset,
                     " instead of ", tokens_ * width(type_),
                     "; Tessera reads sequences one after the other");
    tokens_ += length;
  }
  documents_ = borders - 1;
  ids_ = static_cast<char const*>(mapping_.get());
  TESSERA_VALIDATE(tokens_ * width(type_) == file_bytes_, DataError, file_.string(), " has ",
                   file_bytes_, " bytes, and ", index.string(), " names ", tokens_, " tokens of ",
                   width(type_), " bytes");
}

std::int64_t TokenFile::width(Type type) {
  switch (type) {
    case Type::u8:
    case Type::i8:
      return 1;
    case Type::i16:
    case Type::u16:
      return 2;
    case Type::i32:
    case Type::u32:
      return 4;
    case Type::i64:
      break;
  }
  return 8;
}

std::int64_t TokenFile::id_at(std::int64_t i) const {
  std::int64_t const at = i * width(type_);
  switch (type_) {
    case Type::u8:
      return value_at<std::uint8_t>(ids_, at);
    case Type::i8:
      return value_at<std::int8_t>(ids_, at);
    case Type::i16:
      return value_at<std::int16_t>(ids_, at);
    case Type::u16:
      return value_at<std::uint16_t>(ids_, at);
    case Type::i32:
      return value_at<std::int32_t>(ids_, at);
    case Type::u32:
      return value_at<std::uint32_t>(ids_, at);
    case Type::i64:
      break;
  }
  return value_at<std::int64_t>(ids_, at);
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> out) const {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int64_t const id = id_at(begin + static_cast<std::int64_t>(i));
    TESSERA_VALIDATE(id >= 0 && id <= max_token_id, DataError, file_.string(), ": token ",
                     begin + static_cast<std::int64_t>(i), " is ", id, "; a token id is from 0 to ",
                     max_token_id);
    out[i] = static_cast<std::int32_t>(id);
  }
}

}  // namespace tessera::data::detail

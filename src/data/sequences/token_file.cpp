#include "sequences/token_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tokenizer/bpe_model.hpp"

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

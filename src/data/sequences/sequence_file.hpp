#pragma once
/// The file of packed token sequences. All numbers are in the byte order of the machine that wrote
/// it; another byte order is refused.
///
///   offset   0  magic "TSRBLOCK"        32  records, int64        64  request key, uint64
///            8  version, uint32         40  tokens, int64         72  fingerprint, uint64
///           12  0x01020304, uint32      48  max id, int32         80  XXH3 of the ids, uint64
///           16  length, int64           52  0, uint32             88  XXH3 of bytes 0 to 87
///           24  sequences, int64        56  words, int64          96  ids, int32
///
/// Examples have lengths of their own, the longest of which is `length`: `words` is the number of
/// their ids (0: all sequences have `length`), which have flags (text_dataset.hpp). After the ids,
/// padded to 8 bytes, follow sequences + 1 offsets, int64, of the sequences in the ids.
///
/// It is written under a temporary name, synced, and renamed when complete.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/data/sequences/text_dataset.hpp"
#include "tokenizer/hash.hpp"

namespace tessera::data {

struct SequenceFileHeader {
  char magic[8];
  std::uint32_t version, byte_order;
  std::int64_t length, count, records, tokens;
  std::int32_t max_id;
  std::uint32_t zero;
  std::int64_t words;
  std::uint64_t request_key, fingerprint, ids_sum, header_sum;
};
static_assert(sizeof(SequenceFileHeader) == 96);

class SequenceFile {
 public:
  static constexpr std::uint32_t version = 1;

  enum class Check { header, ids_too };
  /// Maps a file. @throws IoError if it cannot be read, DataError with the reason.
  static TokenSequences open(std::filesystem::path const& file, std::uint64_t request_key,
                             Check check);
  /// Maps a file that another process has checked, from its descriptor, which it closes.
  static TokenSequences open(int descriptor, std::filesystem::path const& file);

 private:
  static TokenSequences sequences_in(std::shared_ptr<void const> mapping,
                                     SequenceFileHeader const& header,
                                     std::filesystem::path const& file);
};

/// Writes a file of sequences; the destructor removes it unless commit() has returned.
class SequenceWriter {
 public:
  SequenceWriter(std::filesystem::path file, std::int64_t length);
  ~SequenceWriter();
  SequenceWriter(SequenceWriter const&) = delete;
  SequenceWriter& operator=(SequenceWriter const&) = delete;

  /// Appends complete sequences.
  void append(std::span<std::int32_t const> ids);
  /// Appends one example. A file has only examples or none.
  void append_example(std::span<std::int32_t const> tokens);
  std::int64_t count() const { return header_.count; }
  std::int64_t length() const { return header_.length; }
  void commit(std::int64_t records, std::int64_t tokens, std::uint64_t request_key,
              std::uint64_t fingerprint);

 private:
  void write(void const* bytes, std::size_t size);

  std::filesystem::path file_, temporary_;
  std::FILE* out_ = nullptr;
  SequenceFileHeader header_{};
  std::vector<std::int64_t> offsets_;  ///< ends of the examples; empty: there are none
  detail::Xxh3Stream ids_sum_;
};

}  // namespace tessera::data

namespace tessera::data::detail {

// Files of token ids that other programs wrote: llm.c's .bin (karpathy/llm.c,
// dev/data/data_common.py) and Megatron's .bin with .idx (NVIDIA/Megatron-LM,
// megatron/core/datasets/indexed_dataset.py).
//
//   llm.c     256 int32: 20240520, 1, tokens, zeros; then uint16 ids
//             or 20240801, 7, tokens, zeros; then uint32 ids
//   Megatron  .idx: "MMIDIDX\0\0", uint64 1, uint8 dtype, uint64 sequences, uint64 documents + 1,
//             int32 length of each sequence, int64 offset of each, int64 documents; .bin: ids

/// Whether the extension is .bin or .idx.
bool is_token_file(std::filesystem::path const& file);

/// The ids of all documents, one after the other, memory-mapped read-only.
class TokenFile {
 public:
  /// @throws IoError, DataError for a damaged file, ConfigError for another kind of .bin.
  explicit TokenFile(std::filesystem::path const& file);

  std::int64_t tokens() const { return tokens_; }
  std::int64_t documents() const { return documents_; }
  /// The ids from @p begin on. @throws DataError for an id that no tokenizer has.
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

 private:
  enum class Type { u8, i8, i16, i32, i64, u16, u32 };
  void open_llmc();
  void open_megatron(std::filesystem::path const& index);
  static Type type_of(int code, std::filesystem::path const& index);
  std::int64_t id_at(std::int64_t i) const;
  static std::int64_t width(Type type);

  std::filesystem::path file_;
  std::shared_ptr<void const> mapping_;
  std::int64_t file_bytes_ = 0;
  char const* ids_ = nullptr;
  Type type_ = Type::u16;
  std::int64_t tokens_ = 0, documents_ = 0;
};

}  // namespace tessera::data::detail

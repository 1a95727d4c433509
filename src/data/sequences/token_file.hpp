#pragma once
/// Files of token ids that other programs wrote: llm.c's .bin (karpathy/llm.c,
/// dev/data/data_common.py) and Megatron's .bin with .idx (NVIDIA/Megatron-LM,
/// megatron/core/datasets/indexed_dataset.py).
///
///   llm.c     256 int32: 20240520, 1, tokens, zeros; then uint16 ids
///             or 20240801, 7, tokens, zeros; then uint32 ids
///   Megatron  .idx: "MMIDIDX\0\0", uint64 1, uint8 dtype, uint64 sequences, uint64 documents + 1,
///             int32 length of each sequence, int64 offset of each, int64 documents; .bin: ids

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace tessera::data::detail {

/// By the extension: .bin or .idx.
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

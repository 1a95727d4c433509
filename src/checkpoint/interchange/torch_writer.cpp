/// torch.save's zip archive, written front to back. APPNOTE.TXT 6.3 gives the records; torch wants
/// entries stored, at multiples of 64 bytes (by a padding extra field "FB"), all under one folder,
/// with data.pkl, byteorder, version and data/<storage>.

#include "tessera/checkpoint/interchange/tensor_writer.hpp"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "interchange/detail/stream_writer.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t limit32 = 0xFFFFFFFFu;
constexpr std::int64_t alignment = 64;
constexpr int local_header_bytes = 30, crc_offset = 14;

/// Little-endian integers into a string.
class Bytes {
 public:
  Bytes& u16(std::uint64_t v) { return put(v, 2); }
  Bytes& u32(std::uint64_t v) { return put(v, 4); }
  Bytes& u64(std::uint64_t v) { return put(v, 8); }
  Bytes& text(std::string_view v) {
    out_.append(v);
    return *this;
  }
  std::string const& str() const { return out_; }

 private:
  Bytes& put(std::uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<char>(v >> (8 * i)));
    return *this;
  }
  std::string out_;
};

/// Pickle protocol 2, only what a state dict needs; all opcodes are among those torch's
/// weights_only reader knows.
class Pickle {
 public:
  void op(std::string_view opcodes) { out_ += opcodes; }
  void global(std::string_view module, std::string_view name) {
    out_ += concat('c', module, '\n', name, '\n');
  }
  void string(std::string_view v) { out_ += Bytes().text("X").u32(v.size()).text(v).str(); }
  void integer(std::int64_t v) {
    if (v < 256)
      out_ += Bytes().text("K").str() + static_cast<char>(v);
    else if (v < (std::int64_t{1} << 31))
      out_ += Bytes().text("J").u32(static_cast<std::uint64_t>(v)).str();
    else
      out_ +=
          Bytes().text(std::string_view("\x8a\x08", 2)).u64(static_cast<std::uint64_t>(v)).str();
  }
  void tuple(std::vector<std::int64_t> const& values) {
    op("(");
    for (auto v : values) integer(v);
    op("t");
  }
  void memoize(std::size_t id) { out_ += Bytes().text("r").u32(id).str(); }
  void recall(std::size_t id) { out_ += Bytes().text("j").u32(id).str(); }
  void empty_ordered_dict() {
    global("collections", "OrderedDict");
    op(")R");
  }
  std::string const& str() const { return out_; }

 private:
  std::string out_{"\x80\x02", 2};
};

char const* storage_class(Dtype dtype) {
  return dtype == Dtype::fp32   ? "FloatStorage"
         : dtype == Dtype::bf16 ? "BFloat16Storage"
                                : "HalfStorage";
}

std::vector<std::int64_t> strides_of(std::vector<std::int64_t> const& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

/// torch._utils._rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict())
void append_tensor(Pickle& pickle, TensorHeader const& tensor, std::size_t key, Dtype dtype) {
  pickle.global("torch._utils", "_rebuild_tensor_v2");
  pickle.op("((");
  pickle.string("storage");
  pickle.global("torch", storage_class(dtype));
  pickle.string(std::to_string(key));
  pickle.string("cpu");
  pickle.integer(tensor.numel());
  pickle.op("tQ");
  pickle.integer(0);
  pickle.tuple(tensor.shape);
  pickle.tuple(strides_of(tensor.shape));
  pickle.op("\x89");
  pickle.empty_ordered_dict();
  pickle.op("tR");
}

std::string pickle_of(std::vector<TensorHeader> const& tensors,
                      std::vector<TensorAlias> const& aliases, Dtype dtype) {
  Pickle pickle;
  pickle.empty_ordered_dict();
  pickle.op("(");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pickle.string(tensors[i].name);
    append_tensor(pickle, tensors[i], i, dtype);
    pickle.memoize(i);
  }
  for (auto const& alias : aliases) {
    pickle.string(alias.name);
    pickle.recall(alias.tensor);
  }
  pickle.op("u.");
  return pickle.str();
}

struct ZipEntry {
  std::string name;
  std::uint64_t bytes = 0, offset = 0;
  std::uint32_t crc = 0;
};

class TorchWriter final : public detail::StreamWriter {
 public:
  TorchWriter(fs::path const& path, std::vector<TensorHeader> const& tensors,
              std::vector<TensorAlias> const& aliases, Dtype dtype)
      : StreamWriter(tensors, dtype),
        root_(path.stem().string()),
        file_(path, bytes_of(0, tensors.size())) {
    add("data.pkl", pickle_of(tensors, aliases, dtype));
    add(".format_version", "1");
    add(".storage_alignment", std::to_string(alignment));
    add("byteorder", "little");
  }

  std::vector<fs::path> finish() override {
    require_complete();
    add("version", "3\n");
    write_directory();
    file_.flush();
    // the checksums, known only now, into the local headers
    for (auto const& entry : entries_)
      file_.pending().file().write(Bytes().u32(entry.crc).str().data(), 4,
                                   static_cast<std::int64_t>(entry.offset) + crc_offset);
    file_.pending().commit();
    return {file_.pending().final_path()};
  }

 private:
  void begin(std::size_t tensor) override {
    open("data/" + std::to_string(tensor), static_cast<std::uint64_t>(bytes_of(tensor)));
  }
  void put(void const* data, std::int64_t bytes) override {
    auto const* from = static_cast<Bytef const*>(data);
    std::uint32_t& crc = entries_.back().crc;
    crc = static_cast<std::uint32_t>(crc32_z(crc, from, static_cast<z_size_t>(bytes)));
    file_.write(data, bytes);
  }
  void add(std::string const& name, std::string const& content) {
    open(name, content.size());
    put(content.data(), static_cast<std::int64_t>(content.size()));
  }

  /// Local file header; its padding field puts the content at a multiple of 64.
  void open(std::string const& name, std::uint64_t bytes) {
    ZipEntry entry{root_ + "/" + name, bytes, static_cast<std::uint64_t>(file_.position()), 0};
    bool const large = bytes >= limit32;
    Bytes extra;
    if (large) extra.u16(1).u16(16).u64(bytes).u64(bytes);
    std::int64_t const before = file_.position() + local_header_bytes +
                                static_cast<std::int64_t>(entry.name.size() + extra.str().size()) +
                                4;
    std::string const padding(
        static_cast<std::size_t>((alignment - before % alignment) % alignment), 'Z');
    extra.text("FB").u16(padding.size()).text(padding);
    Bytes header;
    header.u32(0x04034b50).u16(large ? 45 : 20).u16(0x0800).u16(0).u16(0).u16(0x0021).u32(0);
    header.u32(std::min(bytes, limit32))
        .u32(std::min(bytes, limit32))
        .u16(entry.name.size())
        .u16(extra.str().size());
    file_.write(header.text(entry.name).text(extra.str()).str());
    entries_.push_back(std::move(entry));
  }

  static std::string central_header(ZipEntry const& entry) {
    Bytes extra;
    bool const large = entry.bytes >= limit32, far = entry.offset >= limit32;
    if (large || far) extra.u16(1).u16(static_cast<std::uint64_t>(16 * large + 8 * far));
    if (large) extra.u64(entry.bytes).u64(entry.bytes);
    if (far) extra.u64(entry.offset);
    Bytes header;
    header.u32(0x02014b50)
        .u16(45)
        .u16(large || far ? 45 : 20)
        .u16(0x0800)
        .u16(0)
        .u16(0)
        .u16(0x0021)
        .u32(entry.crc);
    header.u32(std::min(entry.bytes, limit32)).u32(std::min(entry.bytes, limit32));
    header.u16(entry.name.size())
        .u16(extra.str().size())
        .u16(0)
        .u16(0)
        .u16(0)
        .u32(0)
        .u32(std::min(entry.offset, limit32));
    return header.text(entry.name).text(extra.str()).str();
  }

  /// Central directory, ZIP64 end records, end record.
  void write_directory() {
    auto const start = static_cast<std::uint64_t>(file_.position());
    for (auto const& entry : entries_) file_.write(central_header(entry));
    auto const end = static_cast<std::uint64_t>(file_.position());
    std::uint64_t const count = entries_.size(), bytes = end - start;
    Bytes tail;
    tail.u32(0x06064b50)
        .u64(44)
        .u16(45)
        .u16(45)
        .u32(0)
        .u32(0)
        .u64(count)
        .u64(count)
        .u64(bytes)
        .u64(start);
    tail.u32(0x07064b50).u32(0).u64(end).u32(1);
    tail.u32(0x06054b50)
        .u16(0)
        .u16(0)
        .u16(std::min<std::uint64_t>(count, 0xFFFF))
        .u16(std::min<std::uint64_t>(count, 0xFFFF));
    tail.u32(std::min(bytes, limit32)).u32(std::min(start, limit32)).u16(0);
    file_.write(tail.str());
  }

  std::string root_;
  detail::SequentialFile file_;
  std::vector<ZipEntry> entries_;
};

}  // namespace

std::unique_ptr<TensorWriter> make_torch_writer(fs::path const& file,
                                                std::vector<TensorHeader> const& tensors,
                                                std::vector<TensorAlias> const& aliases,
                                                Dtype dtype) {
  return std::make_unique<TorchWriter>(file, tensors, aliases, dtype);
}

}  // namespace tessera::checkpoint

#include "tessera/checkpoint/format/manifest.hpp"

#include <algorithm>
#include <set>

#include "format/detail/checksum.hpp"
#include "format/detail/file.hpp"
#include "format/detail/json_reader.hpp"
#include "tessera/core/error.hpp"

namespace tessera::checkpoint {
namespace {

using detail::JsonReader;

constexpr char format_name[] = "tessera-checkpoint";
constexpr char shuffle_gzip[] = "shuffle+gzip";
constexpr std::int64_t max_manifest_bytes = std::int64_t{1} << 30;
/// The last member; its value is the XXH3 of all text before it.
constexpr std::string_view seal_key = "\"manifest_xxh3\"";

/// Reads a member at most once, and knows in the end which were missing.
class Members {
 public:
  Members(JsonReader& json, std::string where) : json_(json), where_(std::move(where)) {}
  void once(std::string const& key) {
    if (!seen_.insert(key).second) json_.fail(concat("'", key, "' is listed twice in ", where_));
  }
  void require(std::initializer_list<char const*> keys) {
    for (auto const* key : keys)
      if (!seen_.count(key)) json_.fail(concat(where_, " has no '", key, "'"));
  }

 private:
  JsonReader& json_;
  std::string where_;
  std::set<std::string> seen_;
};

std::int64_t read_count(JsonReader& json, std::string const& key, std::int64_t least = 0) {
  std::int64_t const value = json.integer();
  if (value < least) json.fail(concat("'", key, "' is ", value, ", less than ", least));
  return value;
}

ConfigTree read_tree(JsonReader& json, std::string const& source) {
  return ConfigTree::parse(json.raw(), source);
}

std::vector<std::string> read_strings(JsonReader& json) {
  std::vector<std::string> out;
  json.array([&] { out.push_back(json.string()); });
  return out;
}

Compression read_compression(JsonReader& json) {
  std::string const name = json.string();
  if (name != shuffle_gzip && name != "none")
    json.fail(concat("compression '", name, "' is not known; this program reads none and ",
                     shuffle_gzip));
  return name == shuffle_gzip ? Compression::shuffle_gzip : Compression::none;
}

/// {"file": "shard_00000.h5", "bytes": 4096, "first_rank": 0, "ranks": 1}
ShardRecord read_shard(JsonReader& json) {
  ShardRecord shard;
  Members members(json, "a shard");
  json.object([&](std::string const& key) {
    members.once(key);
    if (key == "file")
      shard.file = json.string();
    else if (key == "bytes")
      shard.bytes = read_count(json, key);
    else if (key == "first_rank")
      shard.first_rank = static_cast<int>(std::min<std::int64_t>(read_count(json, key), INT32_MAX));
    else if (key == "compression")
      shard.compression = read_compression(json);
    else if (key == "ranks")
      shard.ranks = static_cast<int>(std::min<std::int64_t>(read_count(json, key, 1), INT32_MAX));
    else
      (void)json.raw();
  });
  members.require({"file", "bytes"});
  if (shard.ranks == 0) shard.first_rank = 0;
  if (!detail::is_plain_name(shard.file))
    json.fail(concat("shard file '", shard.file, "' is not a plain file name"));
  return shard;
}

/// [[4096, 3000], [8192, 2900]]: offset and bytes of each stored chunk.
std::vector<ByteRange> read_chunks(JsonReader& json) {
  std::vector<ByteRange> chunks;
  json.array([&] {
    std::vector<std::int64_t> pair;
    json.array([&] { pair.push_back(read_count(json, "chunks")); });
    if (pair.size() != 2)
      json.fail(concat("a chunk has ", pair.size(), " numbers, not offset and bytes"));
    chunks.push_back({pair[0], pair[1]});
  });
  return chunks;
}

/// {"shard": 0, "offset": 0, "numel": 8, "file_offsets": [4096], "xxh3": ["00..."]}; of a
/// compressed shard with "chunks" for "file_offsets"
ExtentRecord read_extent(JsonReader& json) {
  ExtentRecord extent;
  Members members(json, "an extent");
  std::vector<std::int64_t> offsets;
  std::vector<std::vector<ByteRange>> chunks;
  std::vector<std::vector<std::uint64_t>> sums;
  json.object([&](std::string const& key) {
    members.once(key);
    if (key == "shard")
      extent.shard = static_cast<int>(std::min<std::int64_t>(read_count(json, key), INT32_MAX));
    else if (key == "offset")
      extent.offset = read_count(json, key);
    else if (key == "numel")
      extent.numel = read_count(json, key, 1);
    else if (key == "file_offsets")
      json.array([&] { offsets.push_back(read_count(json, key)); });
    else if (key == "rank")
      extent.rank = static_cast<int>(std::min<std::int64_t>(read_count(json, key), INT32_MAX));
    else if (key == "chunks")
      json.array([&] { chunks.push_back(read_chunks(json)); });
    else if (key == "xxh3")
      json.array([&] {
        if (!detail::from_hex(json.string(), sums.emplace_back()))
          json.fail("'xxh3' is not a string of 16 hexadecimal digits per chunk");
      });
    else
      (void)json.raw();
  });
  if (chunks.empty()) members.require({"file_offsets"});
  members.require({"shard", "offset", "numel", "xxh3"});
  for (auto const& of_state : chunks) offsets.push_back(of_state.empty() ? -1 : of_state[0].offset);
  if (offsets.size() != sums.size())
    json.fail(concat("an extent has ", offsets.size(), " ",
                     chunks.empty() ? "file_offsets" : "chunks", " but ", sums.size(), " xxh3"));
  chunks.resize(sums.size());
  for (std::size_t i = 0; i < sums.size(); ++i)
    extent.states.push_back({offsets[i], std::move(sums[i]), std::move(chunks[i])});
  return extent;
}

std::vector<std::int64_t> read_shape(JsonReader& json) {
  std::vector<std::int64_t> shape;
  std::int64_t numel = 1;
  json.array([&] {
    shape.push_back(read_count(json, "shape", 1));
    if (__builtin_mul_overflow(numel, shape.back(), &numel) || numel > INT64_MAX / 16)
      json.fail("the product of a shape is too large");
  });
  if (shape.empty() || shape.size() > 8)
    json.fail(concat("a shape has ", shape.size(), " dimensions; 1 to 8 are known"));
  return shape;
}

TensorRecord read_tensor(JsonReader& json) {
  TensorRecord tensor;
  Members members(json, "a tensor");
  std::string dtype;
  json.object([&](std::string const& key) {
    members.once(key);
    if (key == "name")
      tensor.name = json.string();
    else if (key == "shape")
      tensor.shape = read_shape(json);
    else if (key == "aliases")
      tensor.aliases = read_strings(json);
    else if (key == "dtype")
      dtype = json.string();
    else if (key == "owners")
      json.array([&] {
        tensor.owners.push_back(
            static_cast<int>(std::min<std::int64_t>(read_count(json, key), INT32_MAX)));
      });
    else if (key == "pieces")
      json.array([&] { tensor.extents.push_back(read_extent(json)); });
    else
      (void)json.raw();
  });
  members.require({"name", "shape", "dtype", "pieces"});
  if (dtype != "fp32")
    json.fail(concat("tensor ", tensor.name, " has dtype '", dtype, "'; this program reads fp32"));
  return tensor;
}

/// {"name": "exp_avg_sq_row", "tensors": [...]}
ReducedState read_reduced_state(JsonReader& json) {
  ReducedState state;
  Members members(json, "a reduced state");
  json.object([&](std::string const& key) {
    members.once(key);
    if (key == "name")
      state.name = json.string();
    else if (key == "tensors")
      json.array([&] { state.tensors.push_back(read_tensor(json)); });
    else
      (void)json.raw();
  });
  members.require({"name", "tensors"});
  return state;
}

void read_format(JsonReader& json, std::string const& key, bool& format_seen) {
  if (key == "format") {
    if (std::string const format = json.string(); format != format_name)
      json.fail(concat("format is '", format, "', not '", format_name, "'"));
    format_seen = true;
    return;
  }
  if (!format_seen) json.fail(concat("'format' must come before '", key, "'"));
  std::int64_t const version = json.integer();
  if (version < 1 || version > Manifest::current_version)
    json.fail(concat("the checkpoint has format version ", version, "; this program reads up to ",
                     Manifest::current_version, ": use a newer Tessera"));
}

/// Every member but format, version and the seal. False for an unknown key.
bool read_member(JsonReader& json, std::string const& key, std::string const& source, Manifest& m) {
  if (key == "run_id")
    m.run_id = json.string();
  else if (key == "created_utc")
    m.created_utc = json.string();
  else if (key == "step")
    m.step = read_count(json, key);
  else if (key == "tokens_seen")
    m.tokens = read_count(json, key);
  else if (key == "samples_seen")
    m.samples = read_count(json, key);
  else if (key == "world_size")
    m.world_size = static_cast<int>(std::min<std::int64_t>(read_count(json, key, 1), INT32_MAX));
  else if (key == "zero_stage")
    m.zero_stage = static_cast<int>(std::min<std::int64_t>(read_count(json, key), INT32_MAX));
  else if (key == "model_config")
    m.model_config = read_tree(json, source + ", model_config");
  else if (key == "resolved_config")
    m.resolved_config = read_tree(json, source + ", resolved_config");
  else if (key == "trainer_state")
    m.trainer_state = read_tree(json, source + ", trainer_state");
  else if (key == "versions")
    m.versions = read_tree(json, source + ", versions");
  else if (key == "frozen")
    m.frozen = read_tree(json, source + ", frozen");
  else if (key == "checksum_block_bytes")
    m.checksum_chunk = read_count(json, key, 4);
  else if (key == "states")
    m.states = read_strings(json);
  else if (key == "skipped_in_a_row")
    m.skipped_in_a_row = read_count(json, key);
  else if (key == "nonfinite")
    m.nonfinite = nonfinite_from(read_tree(json, source + ", nonfinite"));
  else if (key == "shards")
    json.array([&] { m.shards.push_back(read_shard(json)); });
  else if (key == "tensors")
    json.array([&] { m.tensors.push_back(read_tensor(json)); });
  else if (key == "reduced_states")
    json.array([&] { m.reduced_states.push_back(read_reduced_state(json)); });
  else
    return false;
  return true;
}

void check_seal(std::string_view text, std::string const& seal, std::string const& source) {
  std::size_t const at = text.rfind(seal_key);
  std::uint64_t const sum = detail::xxh3(text.data(), static_cast<std::int64_t>(at));
  TESSERA_VALIDATE(seal == detail::to_hex({sum}), DataError, source,
                   ": the text does not match its own checksum (manifest_xxh3 is ", seal,
                   ", the text has ", detail::to_hex({sum}), "); it was damaged or edited");
}

void append_extent(std::string& out, ExtentRecord const& extent) {
  std::vector<std::int64_t> offsets;
  std::string sums, chunks;
  for (auto const& state : extent.states) {
    offsets.push_back(state.file_offset);
    chunks += chunks.empty() ? "[" : ", [";
    for (std::size_t i = 0; i < state.chunks.size(); ++i)
      chunks += concat(i ? ", [" : "[", state.chunks[i].offset, ", ", state.chunks[i].bytes, "]");
    chunks += "]";
    sums += (sums.empty() ? "\"" : ", \"") + detail::to_hex(state.xxh3) + "\"";
  }
  out += concat("    {\"shard\": ", extent.shard, ", \"offset\": ", extent.offset,
                ", \"numel\": ", extent.numel,
                extent.rank >= 0 ? concat(", \"rank\": ", extent.rank) : "");
  bool const compressed = !extent.states.empty() && !extent.states[0].chunks.empty();
  out += compressed ? concat(", \"chunks\": [", chunks, "]")
                    : ", \"file_offsets\": " + detail::list_text(offsets);
  out += ", \"xxh3\": [" + sums + "]}";
}

void append_tensor(std::string& out, TensorRecord const& tensor) {
  out += "  {\"name\": " + detail::json_quote(tensor.name) +
         ", \"shape\": " + detail::list_text(tensor.shape) +
         ", \"aliases\": " + detail::list_text(tensor.aliases) + ", \"dtype\": \"" +
         std::string(name_of(tensor.dtype)) + "\"";
  if (!tensor.owners.empty())
    out += ", \"owners\": " +
           detail::list_text(std::vector<std::int64_t>(tensor.owners.begin(), tensor.owners.end()));
  out += ", \"pieces\": [\n";
  for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
    append_extent(out, tensor.extents[i]);
    out += i + 1 < tensor.extents.size() ? ",\n" : "]}";
  }
}

void append_tensors(std::string& out, std::vector<TensorRecord> const& tensors) {
  out += "\"tensors\": [\n";
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    append_tensor(out, tensors[i]);
    if (i + 1 < tensors.size()) out += ",\n";
  }
  out += "]";
}

}  // namespace

std::int64_t TensorRecord::numel() const {
  std::int64_t n = 1;
  for (auto d : shape) n *= d;
  return n;
}

std::vector<DatasetRun> TensorRecord::runs() const {
  std::vector<DatasetRun> runs;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (runs.empty() || runs.back().shard != extents[i].shard)
      runs.push_back({extents[i].shard, extents[i].offset, 0, i, 0});
    runs.back().numel += extents[i].numel;
    ++runs.back().extents;
  }
  return runs;
}

std::size_t Manifest::state_index(std::string const& name) const {
  auto const it = std::find(states.begin(), states.end(), name);
  TESSERA_VALIDATE(it != states.end(), DataError, file().string(), " has no state '", name,
                   "', only ", detail::list_text(state_names()));
  return static_cast<std::size_t>(it - states.begin());
}

TensorRecord const* Manifest::find(std::string const& name) const {
  for (auto const& tensor : tensors)
    if (tensor.name == name ||
        std::find(tensor.aliases.begin(), tensor.aliases.end(), name) != tensor.aliases.end())
      return &tensor;
  return nullptr;
}

std::vector<std::string> Manifest::state_names() const {
  auto names = states;
  for (auto const& state : reduced_states) names.push_back(state.name);
  return names;
}

std::vector<Manifest> Manifest::reduced_manifests() const {
  std::vector<Manifest> out;
  for (auto const& state : reduced_states) {
    Manifest& m = out.emplace_back();
    m.directory = directory;
    m.run_id = run_id;
    m.step = step;
    m.world_size = world_size;
    m.zero_stage = zero_stage;
    m.checksum_chunk = checksum_chunk;
    m.shards = shards;
    m.states = {state.name};
    m.tensors = state.tensors;
  }
  return out;
}

std::int64_t Manifest::needed_version() const {
  if (!reduced_states.empty()) return 3;
  for (auto const& shard : shards)
    if (shard.compression != Compression::none) return 2;
  for (auto const& tensor : tensors)
    for (auto const& run : tensor.runs())
      if (run.extents > 1) return 2;
  return 1;
}

Manifest parse_manifest(std::string_view text, std::filesystem::path const& directory) {
  Manifest m;
  m.directory = directory;
  std::string const source = m.file().string();
  JsonReader json(text, source);
  Members members(json, "the manifest");
  bool format_seen = false;
  std::string seal;
  json.object([&](std::string const& key) {
    members.once(key);
    if (!seal.empty()) json.fail("'manifest_xxh3' is not the last member");
    if (key == "format" || key == "version")
      read_format(json, key, format_seen);
    else if (key == "manifest_xxh3")
      seal = json.string();
    else if (!read_member(json, key, source, m))
      (void)json.raw();
  });
  json.end();
  members.require({"format", "version", "run_id", "step", "world_size", "zero_stage",
                   "model_config", "trainer_state", "checksum_block_bytes", "states", "shards",
                   "tensors", "manifest_xxh3"});
  detail::check_consistency(m, source);
  check_seal(text, seal, source);
  return m;
}

std::string read_manifest_text(std::filesystem::path const& step_directory) {
  return detail::read_text(step_directory / "manifest.json", max_manifest_bytes,
                           detail::File::Links::refuse);
}

Manifest read_manifest(std::filesystem::path const& step_directory) {
  return parse_manifest(read_manifest_text(step_directory), step_directory);
}

std::string manifest_text(Manifest const& m) {
  std::string out =
      concat("{\n\"format\": \"", format_name, "\",\n\"version\": ", m.needed_version(), ",\n");
  out += "\"run_id\": " + detail::json_quote(m.run_id) +
         ",\n\"created_utc\": " + detail::json_quote(m.created_utc) + ",\n";
  out += concat("\"step\": ", m.step, ",\n\"tokens_seen\": ", m.tokens,
                ",\n\"samples_seen\": ", m.samples, ",\n\"world_size\": ", m.world_size,
                ",\n\"zero_stage\": ", m.zero_stage, ",\n");
  out += "\"model_config\": " + m.model_config.dump(1) +
         ",\n\"resolved_config\": " + m.resolved_config.dump(1) +
         ",\n\"trainer_state\": " + m.trainer_state.dump(1) +
         ",\n\"versions\": " + m.versions.dump(1) + ",\n";
  if (!m.frozen.is_null()) out += "\"frozen\": " + m.frozen.dump(1) + ",\n";
  out += concat("\"checksum\": \"xxh3-64\",\n\"checksum_block_bytes\": ", m.checksum_chunk,
                ",\n\"states\": ", detail::list_text(m.states), ",\n");
  out += concat("\"skipped_in_a_row\": ", m.skipped_in_a_row, ",\n");
  if (m.nonfinite) out += "\"nonfinite\": " + to_tree(*m.nonfinite).dump() + ",\n";
  out += "\"shards\": [\n";
  for (std::size_t i = 0; i < m.shards.size(); ++i)
    out += concat("  {\"file\": ", detail::json_quote(m.shards[i].file),
                  ", \"bytes\": ", m.shards[i].bytes,
                  m.shards[i].ranks > 0 ? concat(", \"first_rank\": ", m.shards[i].first_rank,
                                                 ", \"ranks\": ", m.shards[i].ranks)
                                        : "",
                  m.shards[i].compression == Compression::none
                      ? ""
                      : concat(", \"compression\": \"", shuffle_gzip, "\""),
                  "}", i + 1 < m.shards.size() ? ",\n" : "");
  out += "],\n";
  append_tensors(out, m.tensors);
  out += ",\n";
  if (!m.reduced_states.empty()) out += "\"reduced_states\": [\n";
  for (std::size_t i = 0; i < m.reduced_states.size(); ++i) {
    out += "{\"name\": " + detail::json_quote(m.reduced_states[i].name) + ", ";
    append_tensors(out, m.reduced_states[i].tensors);
    out += i + 1 < m.reduced_states.size() ? "},\n" : "}],\n";
  }
  std::uint64_t const sum = detail::xxh3(out.data(), static_cast<std::int64_t>(out.size()));
  out += concat(seal_key, ": \"", detail::to_hex({sum}), "\"\n}\n");
  return out;
}

}  // namespace tessera::checkpoint

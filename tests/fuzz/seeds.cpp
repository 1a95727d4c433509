#include <zlib.h>

#include <algorithm>
#include <fstream>

#include "checkpoint/interchange/detail/zip_reader.hpp"
#include "data/sequences/sequence_file.hpp"
#include "fuzz.hpp"

namespace tessera::fuzz {
namespace {

namespace fs = std::filesystem;
using Seeds = std::vector<std::string>;

fs::path const tests = TESSERA_TEST_DATA;
fs::path const deepspeed_data = tests / "checkpoint/data/deepspeed";

std::string read(fs::path const& path) {
  std::ifstream in(path, std::ios::binary);
  TESSERA_VALIDATE(in, IoError, "cannot read ", path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

/// Files of this name below a folder, at most 64 KiB each.
Seeds files(fs::path const& below, std::string_view name, std::string const& before = "") {
  std::vector<fs::path> paths;
  for (auto const& entry : fs::recursive_directory_iterator(below))
    if (entry.is_regular_file() && entry.file_size() <= 65536 && entry.path().filename() == name)
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  Seeds out;
  for (auto const& path : paths) out.push_back(before + read(path));
  return out;
}

std::string pickle_of(fs::path const& path) {
  auto const file = checkpoint::detail::File::open_read(path);
  checkpoint::detail::ZipReader const zip(file);
  for (auto const& member : zip.members())
    if (member.name.ends_with("/data.pkl")) {
      std::string text(static_cast<std::size_t>(member.bytes), '\0');
      file.read(text.data(), member.bytes, member.offset);
      return text;
    }
  throw DataError(path.string() + " has no data.pkl");
}

std::string gzipped(std::string const& text) {
  fs::path const path = folder() / "seed.gz";
  gzFile const out = gzopen(path.c_str(), "wb");
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  return read(path);
}

std::string sequence_file() {
  fs::path const path = folder() / "seed.tsrb";
  data::SequenceWriter out(path, 4);
  std::vector<std::int32_t> const ids = {1, 2, 3, 4, 5, 6, 7, 8};
  out.append(ids);
  out.commit(2, 9, 7, 8);
  return read(path);
}

std::string both(std::string const& first, std::string const& second) {
  std::string out;
  for (std::size_t i = 0; i < 4; ++i) out.push_back(static_cast<char>(first.size() >> (8 * i)));
  return out + first + second;
}

Seeds json_seeds() {
  Seeds out = {
      std::string("\0", 1) +
          R"([null,true,-1,1e300,18446744073709551615,"\u00e4\ud83d\ude00",{"a":{"b":[]}}])",
      "\1{\"zero_optimization\": {\"stage\": 3, // comment\n \"a\": 1\n \"b\": [1,2,],},}\n# end"};
  for (auto const& one : files(deepspeed_data / "z1_w1", "config.json", std::string(1, '\0')))
    out.push_back(one);
  for (auto const& one : files(deepspeed_data, "ds_config.json", "\1")) out.push_back(one);
  return out;
}

Seeds manifest_seeds() {
  Seeds out;
  for (int ranks : {1, 3})
    out.push_back(read(tiny_checkpoint(concat("seed-", ranks), ranks) / "manifest.json"));
  return out;
}

Seeds deepspeed_configs() {
  Seeds out = files(deepspeed_data, "ds_config.json");
  for (auto const& entry : fs::recursive_directory_iterator(tests.parent_path() / "configs"))
    if (entry.path().extension() == ".json" && entry.file_size() < 4096)
      out.push_back(read(entry.path()));
  return out;
}

Seeds option_seeds() {
  std::string const yaml =
      "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nmixed_precision: 'no'\n"
      "deepspeed_config:\n  zero_stage: 3\n  gradient_clipping: 1.0\n";
  std::string const fsdp_yaml =
      "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
      "  fsdp_min_num_params: 2000\n";
  return {std::string(1, '\0') + "{\"learning_rate\": 1e-4, \"max_steps\": 10, \"report_to\": []}",
          '\1' + yaml,
          '\1' + fsdp_yaml,
          std::string("\2{\"min_num_params\": 5, \"reshard_after_forward\": false}"),
          std::string("\3--fsdp=full_shard auto_wrap\n--learning_rate\n1e-3\n--bf16\n"),
          std::string("\3--load_best_model_at_end\n--eval_strategy=steps\n--optim=sgd\n")};
}

Seeds torch_pickles() {
  Seeds out = {pickle_of(deepspeed_data / "torch_files/zip.pt")};
  for (auto const& entry : fs::recursive_directory_iterator(deepspeed_data / "z3_w2_bf16"))
    if (entry.path().extension() == ".pt") out.push_back(pickle_of(entry.path()));
  return out;
}

Seeds deepspeed_pairs() {
  fs::path const step = deepspeed_data / "z1_w1/step3";
  std::string const model = pickle_of(step / "mp_rank_00_model_states.pt");
  return {
      both(pickle_of(step / "zero_pp_rank_0_mp_rank_00_optim_states.pt"), model),
      both(pickle_of(deepspeed_data / "z3_w3/step3/zero_pp_rank_0_mp_rank_00_optim_states.pt"),
           pickle_of(deepspeed_data / "z3_w3/step3/zero_pp_rank_0_mp_rank_00_model_states.pt"))};
}

Seeds tokenizers() {
  Seeds out;
  std::vector<fs::directory_entry> folders;
  for (char const* name : {"tokenizer", "tokenizer_models"})
    for (auto const& entry : fs::directory_iterator(tests / "data/vectors" / name))
      folders.push_back(entry);
  for (auto const& entry : folders)
    if (fs::path const file = entry.path() / "tokenizer.json";
        fs::exists(file) && fs::file_size(file) <= 65536) {
      fs::path const config = entry.path() / "tokenizer_config.json";
      out.push_back(read(file) + (fs::exists(config) ? std::string(1, '\0') + read(config) : ""));
    }
  return out;
}

Seeds vocabularies() {
  fs::path const folder = tests / "data/vectors/tokenizer/two_files";
  return {read(folder / "vocab.json") + std::string(1, '\0') + read(folder / "merges.txt"),
          std::string("{\"a\":0,\"b\":1,\"ab\":2}\0#version: 0.2\na b\n", 41)};
}

Seeds chat_seeds() {
  Seeds out;
  for (auto const& entry : fs::directory_iterator(tests / "data/vectors/chat"))
    if (entry.path().extension() == ".jinja") out.push_back(read(entry.path()));
  std::sort(out.begin(), out.end());
  out.push_back(out.front() + std::string(1, '\0') +
                R"([{"role": "tool", "content": [{"type": "text", "text": "a"}], "n": -1.5e3}])");
  return out;
}

Seeds record_seeds() {
  std::string const text = "one line\r\n\r\nand \xc3\xa4 another\rlast",
                    lines = "{\"text\": \"a \\\" {\"}\n{\"text\": \"b\\u00e4\"}\n",
                    array = "[{\"text\": \"a\"}, {\"text\": \"b\"}]";
  return {std::string(1, '\0') + text, '\1' + lines, '\2' + array, '\3' + gzipped(text),
          '\4' + gzipped(lines)};
}

}  // namespace

std::vector<std::string> seeds(std::string_view target) {
  if (target == "json") return json_seeds();
  if (target == "manifest") return manifest_seeds();
  if (target == "model_config") return files(deepspeed_data / "z1_w1", "config.json");
  if (target == "deepspeed_config") return deepspeed_configs();
  if (target == "training_options") return option_seeds();
  if (target == "safetensors") return {read(tests / "oracles/safetensors_reference.safetensors")};
  if (target == "torch_file")
    return {read(deepspeed_data / "torch_files/zip.pt"),
            read(deepspeed_data / "torch_files/legacy.pt")};
  if (target == "torch_pickle") return torch_pickles();
  if (target == "deepspeed") return deepspeed_pairs();
  if (target == "tokenizer") return tokenizers();
  if (target == "vocabulary") return vocabularies();
  if (target == "chat") return chat_seeds();
  if (target == "records") return record_seeds();
  if (target == "blocks") return {sequence_file()};
  if (target == "shard") return {read(tiny_checkpoint("seed-shard", 1) / "shard_00000.h5")};
  return {};
}

}  // namespace tessera::fuzz

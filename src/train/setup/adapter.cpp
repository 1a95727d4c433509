#include "tessera/train/setup/adapter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/text.hpp"
#include "tessera/core/words.hpp"
#include "tessera/zero/weights/base_values.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

/// Finalizer of MurmurHash3 (Appleby, 2016).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDu;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53u;
  return x ^ (x >> 33);
}

std::uint64_t hash_of(std::string const& name) {
  std::uint64_t h = 0xCBF29CE484222325u;
  for (char const c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

/// "a,b" is two names, as in the commands of several trainers.
std::vector<std::string> split_at_commas(std::vector<std::string> const& words) {
  std::vector<std::string> out;
  for (auto const& word : words)
    for (auto& name : split(word, ','))
      if (!name.empty()) out.push_back(std::move(name));
  return out;
}

bool is_expression(std::string const& word) {
  return word.find_first_of("*+?()|[]^$\\") != std::string::npos;
}

model::LoraOptions read_adapter(fs::path const& directory) {
  fs::path const file = directory / "adapter_config.json";
  TESSERA_VALIDATE(fs::exists(file), IoError, "--adapter ", directory.string(), ": there is no ",
                   file.string(),
                   "; give a directory that PEFT's save_pretrained or a run with "
                   "--use_peft_lora has written");
  return model::read_adapter_config(ConfigTree::read(file));
}

}  // namespace

std::optional<model::LoraOptions> lora_options(config::TrainingArguments const& a,
                                               ConfigTree const& hf_config) {
  if (!a.adapter.empty()) return model::complete_lora(read_adapter(a.adapter), hf_config);
  if (!a.use_peft_lora) return std::nullopt;
  model::LoraOptions out;
  out.rank = static_cast<int>(a.lora_r);
  out.alpha = a.lora_alpha;
  out.dropout = a.lora_dropout;
  out.rank_stabilized = a.use_rslora;
  out.magnitudes = a.use_dora;
  if (a.init_lora_weights == "gaussian") out.init = model::LoraInit::gaussian;
  if (a.init_lora_weights == "false") out.init = model::LoraInit::nonzero;
  out.modules_to_save = split_at_commas(a.lora_modules_to_save);
  out.ties_saved_modules = !out.modules_to_save.empty();
  if (a.lora_target_modules.size() == 1 && is_expression(a.lora_target_modules[0]))
    out.pattern = a.lora_target_modules[0];
  else
    out.targets = split_at_commas(a.lora_target_modules);
  return model::complete_lora(std::move(out), hf_config);
}

std::vector<std::string> unmatched_targets(model::LoraOptions const& lora,
                                           std::vector<memory::UnitSpec> const& units) {
  std::vector<std::string> out;
  for (auto const& target : lora.targets) {
    auto const suffix = target + ".lora_A.weight";
    bool const matches = std::any_of(units.begin(), units.end(), [&](auto const& unit) {
      return std::any_of(unit.parameters.begin(), unit.parameters.end(), [&](auto const& p) {
        return p.name == model::adapter_prefix + suffix || p.name.ends_with("." + suffix);
      });
    });
    if (!matches && target != "all-linear") out.push_back(target);
  }
  return out;
}

zero::Engine::Fill combine(std::vector<memory::UnitSpec> const& units, zero::Engine::Fill trained,
                           zero::Engine::Fill frozen) {
  return [&units, trained = std::move(trained), frozen = std::move(frozen)](
             zero::UnitIndex unit, int parameter, std::int64_t first, std::int64_t numel,
             float* out) {
    auto const& all = units[position(unit)].parameters;
    if (!all[static_cast<std::size_t>(parameter)].trains)
      return frozen(unit, parameter, first, numel, out);
    auto const before =
        std::count_if(all.begin(), all.begin() + parameter, [](auto const& p) { return p.trains; });
    trained(unit, static_cast<int>(before), first, numel, out);
  };
}

namespace {

/// The parameters of one adapted layer.
struct AdaptedLayer {
  memory::ParameterSpec const *w, *a, *b;
  std::vector<float> w_values, a_values, b_values;  ///< A and B are empty where B is zero

  std::int64_t inputs() const { return a->shape[1]; }
  std::int64_t outputs() const { return b->shape[0]; }

  /// The norm of row @p output of W + scale B A.
  double norm(std::int64_t output, model::LoraOptions const& lora) const {
    double sum = 0.0;
    for (std::int64_t i = 0; i < inputs(); ++i) {
      double v = w_values[static_cast<std::size_t>(lora.transposed ? i * outputs() + output
                                                                   : output * inputs() + i)];
      for (std::int64_t r = 0; r < lora.rank && !b_values.empty(); ++r)
        v += lora.scale() * b_values[static_cast<std::size_t>(output * lora.rank + r)] *
             a_values[static_cast<std::size_t>(r * inputs() + i)];
      sum += v * v;
    }
    return std::sqrt(sum);
  }
};

}  // namespace

zero::Engine::Fill with_magnitudes(zero::Engine::Fill fill,
                                   std::vector<memory::UnitSpec> const& units,
                                   model::LoraOptions const& lora, KeptBase const& base) {
  return [&units, fill = std::move(fill), lora, base](zero::UnitIndex unit, int parameter,
                                                      std::int64_t first, std::int64_t numel,
                                                      float* out) {
    auto const& all = units[position(unit)].parameters;
    std::string const& name = all[static_cast<std::size_t>(parameter)].name;
    if (!name.ends_with(model::magnitude_suffix)) return fill(unit, parameter, first, numel, out);
    auto const find = [&](std::string const& wanted) {
      auto const found = std::ranges::find(all, wanted, &memory::ParameterSpec::name);
      TESSERA_EXPECT(found != all.end(), wanted);
      return &*found;
    };
    auto const read = [&](memory::ParameterSpec const* spec) {
      std::vector<float> values(static_cast<std::size_t>(spec->numel()));
      fill(unit, static_cast<int>(spec - all.data()), 0, spec->numel(), values.data());
      return values;
    };
    std::string const layer = name.substr(0, name.size() - (sizeof model::magnitude_suffix - 1));
    AdaptedLayer of{.w = find(layer.substr(sizeof model::adapter_prefix - 1) + ".weight"),
                    .a = find(layer + ".lora_A.weight"),
                    .b = find(layer + ".lora_B.weight"),
                    .w_values = {},
                    .a_values = {},
                    .b_values = {}};
    of.w_values = read(of.w);
    if (base.codes)
      zero::quantize_values(*of.w, *base.codes, of.w_values.data());
    else
      zero::round_values(base.dtype, of.w_values.data(), of.w->numel());
    if (lora.init == model::LoraInit::nonzero) of.a_values = read(of.a), of.b_values = read(of.b);
    for (std::int64_t i = 0; i < numel; ++i) out[i] = static_cast<float>(of.norm(first + i, lora));
  };
}

void FrozenChecksum::add(std::string const& parameter, std::int64_t first, std::int64_t numel,
                         float const* values) {
  std::uint64_t const name = hash_of(parameter);
  for (std::int64_t i = 0; i < numel; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof bits);
    sum_ += mixed(name + 0x9E3779B97F4A7C15u * static_cast<std::uint64_t>(first + i) + bits);
  }
}

std::string FrozenChecksum::total(comm::Collectives& comm) const {
  auto const sums = comm::gather_bytes(comm, fmt::format("{:016x}", sum_), 0);
  std::uint64_t total = 0;
  for (auto const& text : sums) {
    std::uint64_t one = 0;
    std::from_chars(text.data(), text.data() + text.size(), one, 16);
    total += one;
  }
  return comm::broadcast_bytes(comm, fmt::format("{:016x}", total), 0);
}

ConfigTree frozen_record(zero::PartitionPlan const& frozen, std::string const& checksum,
                         std::optional<model::LoraOptions> const& lora, std::string const& base) {
  if (frozen.parameter_count() == 0) return {};
  ConfigTree out;
  out.set("parameters", frozen.parameter_count()).set("checksum", checksum);
  if (lora) out.set("adapter_config", model::adapter_config(*lora, base));
  return out;
}

void check_adapters(ConfigTree const& saved, std::optional<model::LoraOptions> const& lora,
                    std::string const& directory) {
  auto const* was = saved.find("adapter_config");
  TESSERA_VALIDATE(!was || lora, ConfigError, directory,
                   " has the adapters of a run with --use_peft_lora; give it, with the same "
                   "--lora_r, --lora_alpha and --lora_target_modules");
  TESSERA_VALIDATE(was || !lora, ConfigError, directory,
                   " is of a run without adapters; leave --use_peft_lora and --adapter out, or "
                   "start a new run from its weights with --model_name_or_path");
  if (!was) return;
  auto const then = model::read_adapter_config(*was);
  TESSERA_VALIDATE(then.rank == lora->rank && then.scale() == lora->scale(), ConfigError, directory,
                   " has adapters with r ", then.rank, " that are scaled by ", then.scale(),
                   "; those of this run have r ", lora->rank, " and are scaled by ", lora->scale(),
                   ": give the same --lora_r, --lora_alpha and --use_rslora");
  TESSERA_VALIDATE(then.magnitudes == lora->magnitudes, ConfigError, directory,
                   " has adapters with", then.magnitudes ? "" : "out",
                   " magnitudes: ", then.magnitudes ? "give --use_dora" : "leave --use_dora out");
}

void check_frozen(ConfigTree const& saved, ConfigTree const& now, std::string const& directory) {
  std::string const then = saved.get_string("checksum", "none"),
                    here = now.get_string("checksum", "none");
  TESSERA_VALIDATE(then == here, ConfigError, directory,
                   " was trained with other frozen weights (checksum ", then, ", here ", here,
                   "); give the same --model_name_or_path and --frozen_parameters, and for random "
                   "weights the same --seed");
}

}  // namespace tessera::train

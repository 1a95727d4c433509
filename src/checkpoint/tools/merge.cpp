#include "tessera/checkpoint/tools/merge.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>

#include "interchange/detail/model_directory.hpp"
#include "tessera/checkpoint/interchange/model_weights.hpp"
#include "tessera/checkpoint/interchange/tensor_writer.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/files.hpp"
#include "tessera/core/log.hpp"
#include "tools/detail/model_output.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_numel = std::int64_t{4} << 20;  ///< elements in memory of one tensor
std::string const peft_prefix = "base_model.model.";

struct Adapter {
  memory::ParameterSpec const* a = nullptr;           ///< [rank, in]
  memory::ParameterSpec const* b = nullptr;           ///< [out, rank]
  memory::ParameterSpec const* magnitudes = nullptr;  ///< [out]; null: not DoRA
};

std::vector<float> read(ModelWeights const& weights, memory::ParameterSpec const& spec) {
  std::vector<float> out(static_cast<std::size_t>(spec.numel()));
  weights.fill(spec, 0, spec.numel(), out.data());
  return out;
}

/// The low-rank matrices, arranged for rows of W: delta[row][k] = scale * sum_r left[row][r]
/// right[r][k].
struct Delta {
  std::int64_t rank = 0;
  std::vector<float> left, right;

  void add(std::int64_t first_row, std::int64_t rows, std::int64_t columns, double scale,
           float* out) const {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t r = 0; r < rank; ++r) {
        auto const factor = static_cast<float>(
            scale *
            static_cast<double>(left[static_cast<std::size_t>((first_row + row) * rank + r)]));
        float const* const from = right.data() + r * columns;
        float* const to = out + row * columns;
        for (std::int64_t k = 0; k < columns; ++k) to[k] += factor * from[k];
      }
  }
};

/// A parameter of the model under the name that PEFT gives it in an adapter's file.
memory::ParameterSpec saved_by_peft(memory::ParameterSpec parameter) {
  parameter.name = peft_prefix + parameter.name;
  for (auto& alias : parameter.aliases) alias = peft_prefix + alias;
  return parameter;
}

std::vector<float> transposed(std::vector<float> const& in, std::int64_t rows,
                              std::int64_t columns) {
  std::vector<float> out(in.size());
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t k = 0; k < columns; ++k)
      out[static_cast<std::size_t>(k * rows + i)] = in[static_cast<std::size_t>(i * columns + k)];
  return out;
}

/// Whether a parameter is of a module that trained in full.
bool is_in_full(memory::ParameterSpec const& parameter) {
  return !parameter.is_adapter && parameter.name.starts_with(peft_prefix);
}

/// The units under the names of the model's files. @throws DataError where @p adapters lacks a
/// parameter of a module that trained in full
std::vector<memory::UnitSpec> named_as_in_model(std::vector<memory::UnitSpec> units,
                                                ModelWeights const& adapters) {
  auto in_full = units;
  for (auto& unit : in_full) std::erase_if(unit.parameters, std::not_fn(is_in_full));
  for (auto& unit : units)
    for (auto& p : unit.parameters) {
      if (!is_in_full(p)) continue;
      TESSERA_VALIDATE(adapters.has(p), DataError, adapters.files()[0].string(), " lacks ", p.name,
                       ", which modules_to_save of its adapter_config.json names; give the "
                       "directory that the run has written");
      p.name.erase(0, peft_prefix.size());
      for (auto& alias : p.aliases) alias.erase(0, peft_prefix.size());
    }
  adapters.require_copies(in_full);
  return units;
}

class Merge {
 public:
  explicit Merge(MergeOptions const& options)
      : options_(options),
        base_(options.model),
        adapters_(options.adapter_file),
        units_(named_as_in_model(options.units, adapters_)) {
    std::vector<memory::UnitSpec> model{{"model", {}}}, added{{"adapter", {}}};
    std::vector<std::string> replaced;
    for (auto const& unit : units_)
      for (auto const& p : unit.parameters) {
        bool const is_saved = !p.is_adapter && adapters_.has(saved_by_peft(p));
        if (p.is_adapter || is_saved)
          added[0].parameters.push_back(is_saved ? saved_by_peft(p) : p);
        else
          model[0].parameters.push_back(p);
        if (is_saved) replaced.push_back(p.name);
      }
    if (auto const unused = base_.require(model, replaced, options.stored_vocabulary);
        !unused.empty())
      log::warning(concat(options.model.string(), ": not in the model, and left out: ", unused));
    auto const unused = adapters_.require(added);
    TESSERA_VALIDATE(unused.empty(), DataError, options.adapter_file.string(),
                     " has tensors that are no adapters of this model: ", unused);
    for (auto const& unit : units_)
      for (auto const& p : unit.parameters) {
        if (p.is_adapter)
          find(p);
        else
          tensors_.push_back({p.name, p.shape});
      }
  }

  MergeReport run() {
    std::int64_t bytes = 0;
    for (auto const& t : tensors_)
      bytes += t.numel() * static_cast<std::int64_t>(size_of(options_.dtype));
    (void)detail::prepare_output({options_.output, options_.model, bytes, options_.when_present});
    auto const writer = make_sharded_safetensors_writer(options_.output, tensors_, {},
                                                        options_.dtype, options_.max_shard_bytes);
    for (auto const& unit : units_)
      for (auto const& p : unit.parameters)
        if (!p.is_adapter) write(p, *writer);
    MergeReport report{writer->finish(), static_cast<std::int64_t>(tensors_.size()),
                       static_cast<std::int64_t>(matrices_.size())};
    fs::path const config = options_.output / "config.json";
    write_file_atomically(config, detail::model_config_text(options_.model_config, options_.dtype));
    report.files.push_back(config);
    auto places = detail::companion_places(options_.model, {});
    places.insert(places.begin(), fs::absolute(options_.adapter_file).parent_path());
    for (auto& copy : detail::copy_companions(places, options_.output))
      report.files.push_back(std::move(copy));
    return report;
  }

 private:
  /// "base_model.model.x.lora_A.weight" belongs to "x.weight".
  void find(memory::ParameterSpec const& p) {
    auto const at = p.name.rfind(".lora_");
    TESSERA_EXPECT(p.name.starts_with(peft_prefix) && at != std::string::npos, p.name);
    auto& adapter =
        matrices_[p.name.substr(peft_prefix.size(), at - peft_prefix.size()) + ".weight"];
    auto const kind = p.name.substr(at);
    (kind.starts_with(".lora_A")   ? adapter.a
     : kind.starts_with(".lora_B") ? adapter.b
                                   : adapter.magnitudes) = &p;
  }

  Delta delta_of(Adapter const& adapter) const {
    std::int64_t const rank = adapter.a->shape[0], in = adapter.a->shape[1],
                       out = adapter.b->shape[0];
    auto a = read(adapters_, *adapter.a), b = read(adapters_, *adapter.b);
    if (options_.layout == AdaptedLayout::out_in) return {rank, std::move(b), std::move(a)};
    return {rank, transposed(a, rank, in), transposed(b, out, rank)};
  }

  void write(memory::ParameterSpec const& p, TensorWriter& writer) const {
    auto const found = matrices_.find(p.name);
    bool const is_adapted = found != matrices_.end();
    auto const saved = saved_by_peft(p);
    bool const is_saved = adapters_.has(saved);
    bool const grows = !is_saved && base_.lacks_rows(p, options_.stored_vocabulary);
    auto const mean = grows ? base_.mean_row(p) : std::vector<float>();
    Delta const delta = is_adapted ? delta_of(found->second) : Delta{};
    std::int64_t const columns = p.numel() / p.shape[0];
    auto const read_rows = [&](std::int64_t row, std::int64_t rows, float* out) {
      if (is_saved)
        adapters_.fill(saved, row * columns, rows * columns, out);
      else if (grows)
        base_.fill_grown(p, mean, row * columns, rows * columns, out);
      else
        base_.fill(p, row * columns, rows * columns, out);
      if (is_adapted) delta.add(row, rows, columns, options_.scale, out);
    };
    std::vector<float> const factors = is_adapted && found->second.magnitudes
                                           ? output_factors(found->second, p, read_rows)
                                           : std::vector<float>();
    for_tiles(p, [&](std::int64_t row, std::int64_t rows, std::vector<float>& values) {
      read_rows(row, rows, values.data());
      for (std::size_t i = 0; !factors.empty() && i < values.size(); ++i)
        values[i] *= factors[output_of(row, columns, i)];
      writer.write(values.data(), rows * columns);
    });
  }

  /// body(first row, rows, buffer of their elements) for parts of a matrix.
  template <class Body>
  static void for_tiles(memory::ParameterSpec const& p, Body const& body) {
    std::int64_t const columns = p.numel() / p.shape[0],
                       step = std::max<std::int64_t>(1, most_numel / columns);
    std::vector<float> values;
    for (std::int64_t row = 0; row < p.shape[0]; row += step) {
      std::int64_t const rows = std::min(step, p.shape[0] - row);
      values.resize(static_cast<std::size_t>(rows * columns));
      body(row, rows, values);
    }
  }

  /// The output of the layer to which element @p i of rows from @p row on belongs.
  std::size_t output_of(std::int64_t row, std::int64_t columns, std::size_t i) const {
    auto const width = static_cast<std::size_t>(columns);
    return options_.layout == AdaptedLayout::in_out ? i % width
                                                    : static_cast<std::size_t>(row) + i / width;
  }

  /// DoRA: magnitudes divided by the norms of W + scale * B A, for each output.
  template <class Read>
  std::vector<float> output_factors(Adapter const& adapter, memory::ParameterSpec const& p,
                                    Read const& read_rows) const {
    std::int64_t const columns = p.numel() / p.shape[0];
    auto factors = read(adapters_, *adapter.magnitudes);
    std::vector<double> squares(factors.size(), 0.0);
    for_tiles(p, [&](std::int64_t row, std::int64_t rows, std::vector<float>& values) {
      read_rows(row, rows, values.data());
      for (std::size_t i = 0; i < values.size(); ++i)
        squares[output_of(row, columns, i)] += static_cast<double>(values[i]) * values[i];
    });
    for (std::size_t o = 0; o < factors.size(); ++o)
      factors[o] = static_cast<float>(factors[o] / std::sqrt(squares[o]));
    return factors;
  }

  MergeOptions const& options_;
  ModelWeights base_, adapters_;
  std::vector<memory::UnitSpec> units_;
  std::vector<TensorHeader> tensors_;
  std::map<std::string, Adapter> matrices_;  ///< by the name of the adapted matrix
};

}  // namespace

std::int64_t saved_vocabulary(fs::path const& adapter_file,
                              std::vector<memory::UnitSpec> const& units, std::int64_t vocabulary) {
  ModelWeights const adapters(adapter_file);
  for (auto const& unit : units)
    for (auto const& p : unit.parameters)
      if (auto const shape = adapters.shape_of(saved_by_peft(p));
          !p.is_adapter && p.shape[0] == vocabulary && !shape.empty())
        return shape[0];
  return 0;
}

MergeReport merge_adapter(MergeOptions const& options) { return Merge(options).run(); }

}  // namespace tessera::checkpoint

#include "tessera/train/setup/training_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/process.hpp"
#include "tessera/core/text.hpp"
#include "tessera/data/text/text_files.hpp"
#include "tessera/topology/node_files.hpp"
#include "tessera/train/setup/engine_config.hpp"
#include "tessera/zero/engine/engine.hpp"

namespace tessera::train {
namespace fs = std::filesystem;
namespace {

/// The option of documents that is on; empty: none.
std::string option_of_documents(config::TrainingArguments const& arguments) {
  return arguments.reset_attention_mask ? "--reset_attention_mask"
         : arguments.reset_position_ids ? "--reset_position_ids"
         : arguments.eod_mask_loss      ? "--eod_mask_loss"
                                        : "";
}

constexpr int shown_examples = 2;
constexpr std::int64_t most_threads = 16;  // each reads the tokenizer's files again

class Loader {
 public:
  Loader(config::TrainingArguments const& arguments, model::CausalLm const& model,
         topology::MpiSession const& session, comm::Collectives& comm)
      : arguments_(arguments), model_(model), session_(session), comm_(comm) {}

  TrainingData load(ModelSource const& source) {
    bool const named = !source.tokenizer_directory.empty();
    std::int64_t const model_max_length = named ? load_tokenizer(source.tokenizer_directory) : 0;
    bool const reads_train_file = arguments_.do_train || arguments_.do_eval;
    if (!reads_train_file && !arguments_.do_predict) return std::move(data_);
    TESSERA_VALIDATE(named, UsageError,
                     "no tokenizer is named; give --tokenizer_name DIR (with tokenizer.json, or "
                     "vocab.json and merges.txt)");
    TESSERA_VALIDATE(!reads_train_file || !arguments_.train_file.empty() ||
                         (!arguments_.do_train && !arguments_.validation_file.empty()),
                     UsageError, "no text is named; give --train_file FILE",
                     arguments_.do_eval ? " or --validation_file FILE" : "");
    bool const examples = arguments_.task != config::Task::clm;
    tokenizer_directory_ = source.tokenizer_directory;
    load_sequences(examples ? 0 : block_size(model_max_length));
    if (is_root()) identify(source);
    return std::move(data_);
  }

 private:
  bool is_root() const { return comm_.rank() == 0; }
  bool leads_node() const { return session_.info().local_rank == 0; }

  /// Only the ranks that tokenize keep a tokenizer: one of each node. Returns its model_max_length
  /// on every rank.
  std::int64_t load_tokenizer(fs::path const& directory) {
    comm::run_on_ranks(comm_, leads_node(),
                       [&] { data_.tokenizer = data::load_tokenizer(directory); });
    return std::stoll(comm::broadcast_from_root(
        comm_, [&] { return std::to_string(data_.tokenizer->model_max_length()); }));
  }

  std::int64_t block_size(std::int64_t model_max_length) const {
    auto const size =
        data::choose_block_size(arguments_.block_size, model_max_length, model_.max_positions());
    if (!size.warning.empty() && is_root()) log::warning(size.warning);
    TESSERA_VALIDATE(size.block_size <= model_.max_positions(), ConfigError, "block_size is ",
                     size.block_size, " but the model has ", model_.max_positions(),
                     " positions; use --block_size ", model_.max_positions(), " or less");
    return size.block_size;
  }

  data::TokenSequences sequences_of(data::SequenceRequest const& request) const {
    std::optional<data::TokenSequences> sequences;
    auto const build = [&] {
      sequences = data::build_or_open_sequences(request, *data_.tokenizer);
      data::check_vocabulary(*sequences, *data_.tokenizer, model_.vocabulary_size());
      check_documents(request, *sequences);
    };
    comm::run_on_ranks(comm_, is_root(), [&] {
      if (request.examples) log_examples(request);
      build();
    });
    comm::run_on_ranks(comm_, leads_node() && !is_root(), build);
    auto opened = topology::open_on_node(session_, {leads_node() ? sequences->file() : fs::path()});
    comm::run_on_ranks(comm_, [&] {
      TESSERA_VALIDATE(opened.failure.empty(), IoError, opened.failure);
      if (!leads_node()) sequences = data::open_sequences(opened.release()[0], opened.names()[0]);
    });
    if (request.examples) lay_out(*sequences, request);
    return *sequences;
  }

  void log_examples(data::SequenceRequest const& request) const {
    auto const shown = data::show_examples(request, *data_.tokenizer, shown_examples);
    log::info(concat(request.text.string(), ": ", shown.form));
    for (auto const& example : shown.examples) {
      auto const in_loss = std::ranges::count_if(
          example.tokens, [](std::int32_t token) { return (token & data::not_predicted) == 0; });
      log::info(concat(counted(std::ssize(example.tokens), "token"), ", ", in_loss,
                       " in the loss: ", example.text));
    }
  }

  /// The rows of examples. Documents of packed rows are no longer than the rows.
  void lay_out(data::TokenSequences& sequences, data::SequenceRequest const& request) const {
    sequences.set_layout({.flat = arguments_.padding_free,
                          .multiple_of = arguments_.pad_to_multiple_of,
                          .per_sample = request.examples->preferences ? 2 : 1});
    TESSERA_VALIDATE(sequences.length() <= model_.max_positions(), ConfigError, "an example of ",
                     request.text.string(), " has ", sequences.length(),
                     " tokens but the model has ", model_.max_positions(),
                     " positions; use --max_length ", model_.max_positions(), " or less");
  }

  data::ExampleOptions example_options(bool packs) const {
    auto const& a = arguments_;
    data::ExampleOptions out;
    out.max_length = a.max_length;
    out.completion_only_loss = a.completion_only_loss;
    out.assistant_only_loss = a.assistant_only_loss;
    out.text_field = a.dataset_text_field;
    out.record_template = a.record_template == config::RecordTemplate::alpaca
                              ? data::RecordTemplate::alpaca
                              : data::RecordTemplate::none;
    out.eos_token = a.eos_token;
    out.tokenizer_directory = tokenizer_directory_;
    out.chat_template = a.chat_template_path;
    out.preferences = a.task == config::Task::dpo;
    if (packs)
      out.packing = a.packing_strategy == config::PackingStrategy::bfd ? data::Packing::bfd
                    : a.packing_strategy == config::PackingStrategy::wrapped
                        ? data::Packing::wrapped
                        : data::Packing::bfd_split;
    return out;
  }

  /// Options that separate documents do nothing where no sequence has an end of one.
  void check_documents(data::SequenceRequest const& request,
                       data::TokenSequences const& sequences) const {
    auto const option = option_of_documents(arguments_);
    if (option.empty()) return;
    std::int32_t const eos = data_.tokenizer->eos_id();
    TESSERA_VALIDATE(sequences.contains(eos), DataError, option, ": no sequence of ",
                     request.text.string(), " has the tokenizer's eos_token (id ", eos,
                     "), which ends a document; append it to each record with --append_eos, or "
                     "with tessera tokenize --append_eos");
  }

  void load_sequences(std::int64_t block_size) {
    data::SequenceRequest request;
    request.append_eos = arguments_.append_eos;
    request.block_size = block_size;
    request.line_breaks =
        arguments_.keep_linebreaks ? data::LineBreaks::keep : data::LineBreaks::drop;
    request.broken_records =
        arguments_.skip_broken_records ? data::BrokenRecords::skip : data::BrokenRecords::stop;
    request.threads = static_cast<int>(arguments_.preprocessing_num_workers.value_or(
        std::min<std::int64_t>(std::ssize(allowed_cores()), most_threads)));
    request.cache_folder = arguments_.output_dir / ".cache";
    bool const split = splits_train_file();
    int const percent = split ? static_cast<int>(arguments_.validation_split_percentage) : 0;
    using Kind = data::RecordPart::Kind;
    request.mixture = arguments_.data_mixture;
    if (arguments_.task != config::Task::clm)
      request.examples = example_options(arguments_.packing);
    if (arguments_.do_train) {
      request.text = arguments_.train_file;
      request.part = {split ? Kind::rest : Kind::all, percent};
      data_.train = sequences_of(request);
      if (arguments_.max_train_samples) data_.train->keep_first(*arguments_.max_train_samples);
    }
    if (arguments_.do_train && (!split || arguments_.do_predict))
      request.column = column_of(request);
    if (request.examples)
      request.examples = example_options(arguments_.eval_packing.value_or(arguments_.packing));
    if (arguments_.do_eval) {
      request.text = split ? arguments_.train_file : arguments_.validation_file;
      if (!split) request.mixture.clear();
      request.part = {split ? Kind::first : Kind::all, percent};
      data_.evaluation = sequences_of(request);
      if (arguments_.max_eval_samples) data_.evaluation->keep_first(*arguments_.max_eval_samples);
    }
    if (arguments_.do_predict) {
      if (arguments_.do_eval && !arguments_.do_train) request.column = column_of(request);
      request.text = arguments_.test_file;
      request.part = {Kind::all, 0};
      data_.test = sequences_of(request);
      if (arguments_.max_predict_samples) data_.test->keep_first(*arguments_.max_predict_samples);
    }
  }

  /// Whether records of train_file validate. run_clm.py takes them even from runs that evaluate
  /// nothing, TRL's trainers never do.
  bool splits_train_file() const {
    return arguments_.validation_file.empty() &&
           (arguments_.task == config::Task::clm || arguments_.do_eval);
  }

  data::TextColumn column_of(data::SequenceRequest const& request) const {
    auto name =
        comm::broadcast_from_root(comm_, [&] { return data::text_column_of(request).name; });
    return {std::move(name), request.text};
  }

  /// What determines the samples, for the comparison at a resume.
  void identify(ModelSource const& source) {
    auto const hex = [](std::uint64_t hash) { return fmt::format("{:016x}", hash); };
    auto& identity = data_.identity = ConfigTree::object();
    if (data_.train) {
      bool const split = splits_train_file();
      auto const files = data::find_text_files(arguments_.train_file);
      bool const lines = data::kind_of_file(files.front()) == ".txt";
      identity.set("train_file", arguments_.train_file.string())
          .set("train_file_xxh3", hex(data_.train->text_hash()))
          .set("train_file_part",
               split ? fmt::format("all but the first {} %", arguments_.validation_split_percentage)
                     : "all")
          .set("tokenizer", source.tokenizer_directory.string())
          .set("tokenizer_xxh3", hex(data_.tokenizer->fingerprint()))
          .set("block_size", data_.train->length())
          .set("keep_linebreaks", arguments_.keep_linebreaks || !lines)
          .set("data_mixture", arguments_.data_mixture)
          .set("skip_broken_records", arguments_.skip_broken_records)
          .set("append_eos", arguments_.append_eos);
      if (data_.train->holds_examples())
        identity.set("examples_xxh3", hex(data_.train->fingerprint()));
    }
    if (data_.evaluation && !arguments_.validation_file.empty())
      identity.set("validation_file", arguments_.validation_file.string())
          .set("validation_file_xxh3", hex(data_.evaluation->text_hash()));
  }

  config::TrainingArguments const& arguments_;
  model::CausalLm const& model_;
  topology::MpiSession const& session_;
  comm::Collectives& comm_;
  fs::path tokenizer_directory_;
  TrainingData data_;
};

}  // namespace

model::DocumentOptions find_document_options(config::TrainingArguments const& arguments,
                                             fs::path const& tokenizer, comm::Collectives& comm) {
  bool const has_borders = (arguments.packing_rows() &&
                            arguments.packing_strategy != config::PackingStrategy::wrapped) ||
                           arguments.padding_free;
  if (has_borders) return {.reset_attention_mask = true, .reset_position_ids = true};
  auto const option = option_of_documents(arguments);
  if (option.empty()) return {};
  std::string const eod = comm::broadcast_from_root(comm, [&] {
    TESSERA_VALIDATE(!tokenizer.empty(), UsageError, option,
                     " needs the eos_token of a tokenizer; give --tokenizer_name DIR");
    std::int32_t const id = data::load_tokenizer(tokenizer)->eos_id();
    TESSERA_VALIDATE(id >= 0, ConfigError, option, ": ", tokenizer.string(),
                     " names no eos_token, which ends a document; add it to tokenizer_config.json");
    return std::to_string(id);
  });
  return {.eod_token = std::stoi(eod),
          .reset_attention_mask = arguments.reset_attention_mask,
          .reset_position_ids = arguments.reset_position_ids,
          .eod_mask_loss = arguments.eod_mask_loss};
}

TrainingData load_training_data(config::TrainingArguments const& arguments,
                                ModelSource const& source, model::CausalLm const& model,
                                topology::MpiSession const& session, comm::Collectives& comm) {
  return Loader(arguments, model, session, comm).load(source);
}

namespace {

data::SampleOrder order_of(config::Sampling strategy) {
  switch (strategy) {
    case config::Sampling::random:
      return data::SampleOrder::random;
    case config::Sampling::philox:
      return data::SampleOrder::philox;
    case config::Sampling::group_by_length:
      return data::SampleOrder::group_by_length;
    case config::Sampling::sequential:
      break;
  }
  return data::SampleOrder::sequential;
}

}  // namespace

data::SamplerConfig sampler_config(config::TrainingArguments const& arguments,
                                   config::ResolvedConfig const& config, std::int64_t samples,
                                   int ranks) {
  data::SamplerConfig plan;
  plan.samples = samples;
  plan.ranks = ranks;
  plan.micro_batch = config.micro_batch_size;
  plan.accumulation_steps = config.accumulation_steps;
  plan.epochs = arguments.num_train_epochs;
  plan.max_steps = arguments.max_steps;
  plan.order = arguments.group_by_length ? data::SampleOrder::group_by_length
                                         : order_of(arguments.train_sampling_strategy);
  bool const grouped = plan.order == data::SampleOrder::group_by_length;
  plan.seed = static_cast<std::uint64_t>(grouped ? arguments.seed
                                                 : arguments.data_seed.value_or(arguments.seed));
  if (config.reproducible_world())
    plan.numbering = zero::reduces_micro_steps(engine_config(config))
                         ? data::SamplerConfig::Numbering::by_step
                         : data::SamplerConfig::Numbering::by_rank;
  plan.last_micro_step = config.drop_last ? data::LastMicroStep::drop : data::LastMicroStep::fill;
  return plan;
}

}  // namespace tessera::train

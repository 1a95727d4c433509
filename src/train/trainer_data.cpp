// The trainer's data: tokenizer, and the cached token blocks that the ranks of a node share.
#include "tessera/core/log.hpp"
#include "tessera/topology/node_files.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera::train {
namespace fs = std::filesystem;

/// One part of the data on every rank. Rank 0 builds it, so that nodes which share the directory do
/// not all do it; then one rank of each node builds what its node does not see, and passes the open
/// file to the others.
data::TokenSequences Trainer::blocks_of(data::SequenceRequest const& request) const {
  bool const leads = session_.info().local_rank == 0;
  std::optional<data::TokenSequences> blocks;
  auto const build = [&] {
    blocks = data::build_or_open_sequences(request, *tokenizer_);
    data::check_vocabulary(*blocks, *tokenizer_, model_->vocabulary_size());
  };
  comm::run_on_ranks(comm_, is_root(), build);
  comm::run_on_ranks(comm_, leads && !is_root(), build);
  auto opened = topology::open_on_node(session_, {leads ? blocks->file() : fs::path()});
  comm::run_on_ranks(comm_, true, [&] {
    TESSERA_VALIDATE(opened.failure.empty(), IoError, opened.failure);
    if (!leads) blocks = data::open_sequences(opened.release()[0], opened.names()[0]);
  });
  return *blocks;
}

/// Only the ranks that tokenise keep a tokenizer: one of each node. The others learn what it
/// limits.
std::int64_t Trainer::load_tokenizer() {
  comm::run_on_ranks(comm_, session_.info().local_rank == 0,
                     [&] { tokenizer_ = data::load_tokenizer(source_.tokenizer_directory); });
  return std::stoll(comm::broadcast_from_root(
      comm_, [&] { return std::to_string(tokenizer_->model_max_length()); }));
}

void Trainer::load_data() {
  bool const named = !source_.tokenizer_directory.empty();
  std::int64_t const model_max_length = named ? load_tokenizer() : 0;
  if (!arguments_.do_train && !arguments_.do_eval) return;
  TESSERA_VALIDATE(named, UsageError,
                   "no tokenizer is named; give --tokenizer_name DIR (with tokenizer.json, or "
                   "vocab.json and merges.txt)");
  TESSERA_VALIDATE(!arguments_.train_file.empty() ||
                       (!arguments_.do_train && !arguments_.validation_file.empty()),
                   UsageError, "no text is named; give --train_file FILE",
                   arguments_.do_eval ? " or --validation_file FILE" : "");

  auto const size =
      data::choose_block_size(arguments_.block_size, model_max_length, model_->max_positions());
  if (!size.warning.empty() && is_root()) log::warning(size.warning);
  TESSERA_VALIDATE(size.block_size <= model_->max_positions(), ConfigError, "block_size is ",
                   size.block_size, " but the model has ", model_->max_positions(),
                   " positions; use --block_size ", model_->max_positions(), " or less");
  data::SequenceRequest request;
  request.block_size = size.block_size;
  request.line_breaks =
      arguments_.keep_linebreaks ? data::LineBreaks::keep : data::LineBreaks::drop;
  request.cache_folder = arguments_.output_dir / ".cache";

  bool const split = arguments_.validation_file.empty();
  int const percent = static_cast<int>(arguments_.validation_split_percentage);
  if (arguments_.do_train) {
    request.text = arguments_.train_file;
    request.part = {split ? data::RecordPart::Kind::rest : data::RecordPart::Kind::all,
                    split ? percent : 0};
    train_blocks_ = blocks_of(request);
    if (arguments_.max_train_samples) train_blocks_->keep_first(*arguments_.max_train_samples);
  }
  if (arguments_.do_eval) {
    request.text = split ? arguments_.train_file : arguments_.validation_file;
    request.part = {split ? data::RecordPart::Kind::first : data::RecordPart::Kind::all,
                    split ? percent : 0};
    eval_blocks_ = blocks_of(request);
    if (arguments_.max_eval_samples) eval_blocks_->keep_first(*arguments_.max_eval_samples);
  }
}

}  // namespace tessera::train

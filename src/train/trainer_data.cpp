// The trainer's data: tokenizer, and the cached token blocks that the ranks of a node share.
#include "tessera/core/log.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera::train {
namespace {

/// Runs @p work on one rank of each node; if it fails anywhere, every rank throws the first failure.
void on_node_leaders(comm::Collectives& comm, topology::RankInfo const& info, std::function<void()> const& work) {
  std::string failure;
  if (info.local_rank == 0) {
    try {
      work();
    } catch (Error const& e) {
      failure = concat(static_cast<int>(e.code()), " ", e.what());
    }
  }
  if (comm::agree(comm, failure.empty())) return;
  for (auto const& text : comm::gather_bytes(comm, failure, 0))
    if (failure.empty()) failure = text;
  failure = comm::broadcast_bytes(comm, failure, 0);
  std::size_t const space = failure.find(' ');
  throw Error(static_cast<ExitCode>(std::stoi(failure.substr(0, space))), failure.substr(space + 1));
}

}  // namespace

/// One part of the data on every rank: built by one rank of each node, opened by all.
data::TokenBlocks Trainer::blocks_of(data::BlockRequest const& request) const {
  on_node_leaders(comm_, session_.info(), [&] { data::build_or_open_blocks(request, *tokenizer_); });
  auto blocks = data::open_blocks(request, *tokenizer_);
  data::check_vocabulary(blocks, *tokenizer_, model_->vocabulary_size());
  return blocks;
}

void Trainer::load_data() {
  if (!source_.tokenizer_directory.empty()) tokenizer_ = data::load_tokenizer(source_.tokenizer_directory);
  if (!arguments_.do_train && !arguments_.do_eval) return;
  TESSERA_VALIDATE(tokenizer_, UsageError, "no tokenizer is named; give --tokenizer_name DIR (with tokenizer.json, or vocab.json and merges.txt)");
  TESSERA_VALIDATE(!arguments_.train_file.empty() || (!arguments_.do_train && !arguments_.validation_file.empty()), UsageError,
                   "no text is named; give --train_file FILE", arguments_.do_eval ? " or --validation_file FILE" : "");

  auto const size = data::choose_block_size(arguments_.block_size, tokenizer_->model_max_length(), model_->max_positions());
  if (!size.warning.empty() && is_root()) log::warning(size.warning);
  TESSERA_VALIDATE(size.block_size <= model_->max_positions(), ConfigError, "block_size is ", size.block_size, " but the model has ",
                   model_->max_positions(), " positions; use --block_size ", model_->max_positions(), " or less");
  data::BlockRequest request;
  request.block_size = size.block_size;
  request.line_breaks = arguments_.keep_linebreaks ? data::LineBreaks::keep : data::LineBreaks::drop;
  request.cache_folder = arguments_.output_dir / ".cache";

  bool const split = arguments_.validation_file.empty();
  int const percent = static_cast<int>(arguments_.validation_split_percentage);
  if (arguments_.do_train) {
    request.text = arguments_.train_file;
    request.part = {split ? data::RecordPart::Kind::rest : data::RecordPart::Kind::all, split ? percent : 0};
    train_blocks_ = blocks_of(request);
    if (arguments_.max_train_samples) train_blocks_->keep_first(*arguments_.max_train_samples);
  }
  if (arguments_.do_eval) {
    request.text = split ? arguments_.train_file : arguments_.validation_file;
    request.part = {split ? data::RecordPart::Kind::first : data::RecordPart::Kind::all, split ? percent : 0};
    eval_blocks_ = blocks_of(request);
    if (arguments_.max_eval_samples) eval_blocks_->keep_first(*arguments_.max_eval_samples);
  }
}

}  // namespace tessera::train

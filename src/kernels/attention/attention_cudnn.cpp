// cuDNN's attention through its frontend: "cuDNN Frontend" developer guide, page "Attention",
// sections "SDPA forward" and "SDPA backward".
#include "attention/attention_cudnn.hpp"

#include <algorithm>

#include "attention/document_mask.hpp"
#include "tessera/core/rounding.hpp"

#ifdef TESSERA_HAVE_CUDNN
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "attention/plan_room.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/log.hpp"
#include "tessera/core/shared_library.hpp"
#include "tessera/kernels/launch/device_settings.hpp"
#include "tessera/memory/buffer.hpp"
#include "tessera/memory/device.hpp"
#include "tessera/memory/launch_record.hpp"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // the frontend asks its user for it
}

namespace tessera::kernels::detail {
namespace {

namespace fe = cudnn_frontend;
namespace graph = cudnn_frontend::graph;
using Tensor = std::shared_ptr<graph::Tensor_attributes>;

enum TensorId : std::int64_t {
  query_id = 1,
  key_id,
  value_id,
  out_id,
  lse_id,
  dout_id,
  dquery_id,
  dkey_id,
  dvalue_id,
  mask_seed_id,
  mask_offset_id,
  documents_id
};
using Pointers = std::unordered_map<std::int64_t, void*>;

/// Returns the operands by id; null where a plan has no such operand.
std::array<void*, documents_id> operands_of(Pointers const& pointers) {
  std::array<void*, documents_id> out{};
  for (auto const& [id, data] : pointers) out.at(static_cast<std::size_t>(id - 1)) = data;
  return out;
}

struct Plan {
  std::shared_ptr<graph::Graph> graph;  ///< null: cuDNN has none for this shape
  std::int64_t workspace_bytes = 0;
  explicit operator bool() const { return graph != nullptr; }
};

/// On Hopper the frontend takes the deterministic algorithm with a workspace that is linear in the
/// sequence (cuDNN 9.25) where this variable bounds that of the faster one. It reads the variable
/// while it builds a graph.
class LinearWorkspace {
 public:
  LinearWorkspace() {
    if (char const* value = std::getenv(name)) before_ = value;
    setenv(name, "0", 1);
  }
  ~LinearWorkspace() { before_ ? setenv(name, before_->c_str(), 1) : unsetenv(name); }
  LinearWorkspace(LinearWorkspace const&) = delete;
  LinearWorkspace& operator=(LinearWorkspace const&) = delete;

 private:
  static constexpr char const* name = "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT";
  std::optional<std::string> before_;
};

/// What a plan depends on: direction, shape, strides, dtype, scale, determinism, dropout,
/// documents.
using Key = std::array<std::int64_t, 23>;
Key key_of(FlashCall const& call, bool backward, AttentionGradients const& gradients) {
  auto const& s = call.config.shape;
  Key key{backward,
          s.batch,
          s.sequence,
          s.heads,
          s.kv_heads,
          s.head_dim,
          static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(s.scale)),
          static_cast<std::int64_t>(call.config.dtype),
          backward && device_settings().deterministic,
          static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(call.config.drop.p)),
          !call.in.documents.empty()};
  std::size_t at = 11;
  for (ConstHeadsView const& view :
       {call.in.query, call.in.key, call.in.value, ConstHeadsView(gradients.query),
        ConstHeadsView(gradients.key), ConstHeadsView(gradients.value)}) {
    key[at++] = view.row_stride;
    key[at++] = head_stride_of(view.head_stride, s.head_dim);
  }
  return key;
}

/// [B, H, T, D] over rows that hold all heads of a position.
graph::Tensor_attributes rows_of(TensorId id, FlashCall const& call, int heads,
                                 ConstHeadsView const& view) {
  auto const& s = call.config.shape;
  std::int64_t const stride = view.row_stride;
  return graph::Tensor_attributes()
      .set_uid(id)
      .set_dim({s.batch, heads, s.sequence, s.head_dim})
      .set_stride({s.sequence * stride, head_stride_of(view.head_stride, s.head_dim), stride, 1});
}
graph::Tensor_attributes log_sums_of(FlashCall const& call) {
  auto const& s = call.config.shape;
  return graph::Tensor_attributes()
      .set_uid(lse_id)
      .set_dim({s.batch, s.heads, s.sequence, 1})
      .set_stride({s.heads * s.sequence, s.sequence, 1, 1})
      .set_data_type(fe::DataType_t::FLOAT);
}
void give_out(Tensor const& tensor, graph::Tensor_attributes const& as) {
  tensor->set_output(true).set_uid(as.get_uid()).set_dim(as.get_dim()).set_stride(as.get_stride());
}

/// Dropout with cuDNN's own generator, whose seed and offset are in device memory.
template <class Options>
void add_dropout(Options& options, graph::Graph& to, FlashCall const& call) {
  if (call.config.drop.p <= 0.0f) return;
  auto const number = [&](TensorId id) {
    return to.tensor(graph::Tensor_attributes()
                         .set_uid(id)
                         .set_dim({1, 1, 1, 1})
                         .set_stride({1, 1, 1, 1})
                         .set_data_type(fe::DataType_t::INT64));
  };
  auto const seed = number(mask_seed_id), offset = number(mask_offset_id);
  options.set_dropout(call.config.drop.p, seed, offset);
}
/// Documents by what is added to scores (SetDocumentMask), the same for all heads.
template <class Options>
void add_documents(Options& options, graph::Graph& to, FlashCall const& call) {
  if (call.in.documents.empty()) return;
  auto const& s = call.config.shape;
  std::int64_t const row = document_mask_row(s.sequence), matrix = s.sequence * row;
  options.set_bias(to.tensor(graph::Tensor_attributes()
                                 .set_uid(documents_id)
                                 .set_dim({s.batch, 1, s.sequence, s.sequence})
                                 .set_stride({matrix, matrix, row, 1})));
}
void add_masks(Pointers& pointers, FlashCall const& call, CudnnMasks const& masks) {
  if (!call.in.documents.empty()) pointers[documents_id] = masks.documents;
  if (call.config.drop.p <= 0.0f) return;
  pointers[mask_seed_id] = masks.key;
  pointers[mask_offset_id] = masks.key + 1;
}

void set_types(graph::Graph& of, Dtype dtype) {
  of.set_io_data_type(dtype == Dtype::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF);
  of.set_intermediate_data_type(fe::DataType_t::FLOAT).set_compute_data_type(fe::DataType_t::FLOAT);
}

std::shared_ptr<graph::Graph> forward_graph(FlashCall const& call) {
  auto out = std::make_shared<graph::Graph>();
  add_cudnn_forward(*out, call);
  return out;
}
std::shared_ptr<graph::Graph> backward_graph(FlashCall const& call,
                                             AttentionGradients const& gradients) {
  auto out = std::make_shared<graph::Graph>();
  add_cudnn_backward(*out, call, gradients);
  return out;
}

class CudnnAttention {
 public:
  /// Lives until the process ends, as the plans of matrix products do.
  static CudnnAttention& of_process() {
    static CudnnAttention& attention = *new CudnnAttention;
    return attention;
  }

  /// One execution of a plan, which is a function of the key, the operands and the workspace.
  template <class MakeGraph>
  bool run(memory::Queue& q, Key const& key, Pointers pointers, MakeGraph const& make_graph) {
    std::lock_guard const lock(mutex_);
    void* const stream = q.native_stream();
    if (!start()) return false;
    Plan& plan = plan_of(key, make_graph);
    auto const build_smaller = [&] {
      LinearWorkspace const linear;
      return build(make_graph());
    };
    make_room(plan, build_smaller, [&](std::int64_t bytes) {
      return reserve(workspaces_[stream], "cuDNN attention", bytes);
    });
    if (!plan) return false;
    void* const room = workspaces_[stream].data();
    if (memory::leave_out<CudnnAttention>(q, key, operands_of(pointers), room)) return true;
    require(
        fe::detail::set_stream(handle_, static_cast<cudaStream_t>(stream)) == CUDNN_STATUS_SUCCESS,
        "cudnnSetStream failed");
    auto done = plan.graph->execute(handle_, pointers, room);
    require(done.is_good(), done.get_message());
    return true;
  }

  template <class MakeGraph>
  bool has_plan(Key const& key, MakeGraph const& make_graph) {
    std::lock_guard const lock(mutex_);
    return start() && plan_of(key, make_graph);
  }

  std::int64_t* mask_key_of(void* stream) {
    std::lock_guard const lock(mutex_);
    auto& buffer = mask_keys_[stream];
    if (buffer.bytes() == 0)
      buffer = memory::Buffer("cuDNN dropout seed", memory::Purpose::workspace,
                              2 * sizeof(std::int64_t), memory::MemorySpace::device);
    return static_cast<std::int64_t*>(buffer.data());
  }
  void* document_mask_of(void* stream, std::int64_t bytes) {
    std::lock_guard const lock(mutex_);
    auto& buffer = document_masks_[stream];
    if (reserve(buffer, "cuDNN document mask", bytes)) return buffer.data();
    log::warning(concat("cuDNN's attention needs ", human_bytes(bytes),
                        " for the mask of documents in packed rows, which the device has no room "
                        "for; the portable kernel computes instead, slower; a smaller "
                        "--per_device_train_batch_size needs less"));
    return nullptr;
  }

 private:
  template <class MakeGraph>
  Plan& plan_of(Key const& key, MakeGraph const& make_graph) {
    auto found = plans_.find(key);
    if (found == plans_.end()) found = plans_.emplace(key, build(make_graph())).first;
    return found->second;
  }
  static void require(bool good, std::string const& message) {
    TESSERA_VALIDATE(good, InternalError, "cuDNN's attention: ", message,
                     "; --device_attention portable goes without it");
  }

  /// Loads the libraries. The frontend finds the runtime by its name: one that is loaded already is
  /// the one it takes.
  bool start() {
    if (started_) return handle_ != nullptr;
    started_ = true;
    std::string const runtime_file = concat("libcudart.so.", CUDART_VERSION / 1000),
                      file = concat("libcudnn.so.", CUDNN_MAJOR);
    setenv("CUDNN_FRONTEND_CUDART_LIB_NAME", runtime_file.c_str(), 0);
    runtime_ = SharedLibrary({runtime_file, concat(TESSERA_CUDA_LIBRARY_DIR "/", runtime_file)});
    library_ = SharedLibrary({file, concat(TESSERA_CUDNN_LIBRARY_DIR "/", file)});
    std::string refusal = runtime_.loaded() ? library_.load_error() : runtime_.load_error();
    if (refusal.empty()) {
      fe::cudnn_dlhandle = library_.handle();
      memory::trim_device_pool();  // the library allocates outside the pool
      auto const status = fe::detail::create_handle(&handle_);
      if (status != CUDNN_STATUS_SUCCESS)
        refusal = concat("cudnnCreate: ", fe::detail::get_error_string(status));
    }
    if (!refusal.empty())
      log::warning(concat("cuDNN's attention is not used: ", refusal,
                          "; the portable kernel computes instead, slower"));
    return handle_ != nullptr;
  }

  Plan build(std::shared_ptr<graph::Graph> made) {
    auto built = made->build(handle_, {fe::HeurMode_t::A});
    Plan plan;
    if (!built.is_good()) {
      log::warning(concat("cuDNN has no plan for this attention: ", built.get_message(),
                          "; the portable kernel computes it, slower"));
      return plan;
    }
    require(made->get_workspace_size(plan.workspace_bytes).is_good(),
            "the size of a workspace is not known");
    plan.graph = std::move(made);
    return plan;
  }

  /// False where the device has no room for that many bytes for a stream.
  static bool reserve(memory::Buffer& buffer, char const* name, std::int64_t bytes) {
    if (static_cast<std::int64_t>(buffer.bytes()) >= bytes) return true;
    buffer = memory::Buffer();  // later work may reuse it after what the stream has so far
    try {
      buffer = memory::Buffer(name, memory::Purpose::workspace, static_cast<std::size_t>(bytes),
                              memory::MemorySpace::device);
    } catch (OutOfMemoryError const&) {
      return false;
    }
    return true;
  }

  std::mutex mutex_;
  bool started_ = false;
  SharedLibrary runtime_, library_;
  cudnnHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
  std::map<void*, memory::Buffer> workspaces_, mask_keys_, document_masks_;
};

void* at(void const* data) { return const_cast<void*>(data); }

}  // namespace

void add_cudnn_forward(graph::Graph& to, FlashCall const& call) {
  auto const& s = call.config.shape;
  ConstHeadsView const packed(nullptr, std::int64_t{s.heads} * s.head_dim);
  set_types(to, call.config.dtype);
  auto const q = to.tensor(rows_of(query_id, call, s.heads, call.in.query));
  auto const k = to.tensor(rows_of(key_id, call, s.kv_heads, call.in.key)),
             v = to.tensor(rows_of(value_id, call, s.kv_heads, call.in.value));
  auto options = graph::SDPA_attributes()
                     .set_name("attention")
                     .set_generate_stats(true)
                     .set_attn_scale(s.scale);
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  add_dropout(options, to, call);
  add_documents(options, to, call);
  auto const [mixed, log_sums] = to.sdpa(q, k, v, options);
  give_out(mixed, rows_of(out_id, call, s.heads, packed));
  give_out(log_sums, log_sums_of(call));
  log_sums->set_data_type(fe::DataType_t::FLOAT);
}

void add_cudnn_backward(graph::Graph& to, FlashCall const& call,
                        AttentionGradients const& gradients) {
  auto const& s = call.config.shape;
  ConstHeadsView const packed(nullptr, std::int64_t{s.heads} * s.head_dim);
  set_types(to, call.config.dtype);
  auto const q = to.tensor(rows_of(query_id, call, s.heads, call.in.query));
  auto const k = to.tensor(rows_of(key_id, call, s.kv_heads, call.in.key)),
             v = to.tensor(rows_of(value_id, call, s.kv_heads, call.in.value));
  auto const mixed = to.tensor(rows_of(out_id, call, s.heads, packed)),
             dmixed = to.tensor(rows_of(dout_id, call, s.heads, packed));
  auto const log_sums = to.tensor(log_sums_of(call));
  auto options =
      graph::SDPA_backward_attributes().set_name("attention backward").set_attn_scale(s.scale);
  options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
      .set_diagonal_band_right_bound(0);
  options.set_deterministic_algorithm(device_settings().deterministic);
  add_dropout(options, to, call);
  add_documents(options, to, call);
  auto const [dq, dk, dv] = to.sdpa_backward(q, k, v, mixed, dmixed, log_sums, options);
  give_out(dq, rows_of(dquery_id, call, s.heads, gradients.query));
  give_out(dk, rows_of(dkey_id, call, s.kv_heads, gradients.key));
  give_out(dv, rows_of(dvalue_id, call, s.kv_heads, gradients.value));
}

bool cudnn_attention(memory::Queue& q, FlashCall const& call, void* out, float* lse,
                     CudnnMasks const& masks) {
  Pointers pointers{{query_id, at(call.in.query.base)},
                    {key_id, at(call.in.key.base)},
                    {value_id, at(call.in.value.base)},
                    {out_id, out},
                    {lse_id, lse}};
  add_masks(pointers, call, masks);
  return CudnnAttention::of_process().run(q, key_of(call, false, {}), std::move(pointers),
                                          [&] { return forward_graph(call); });
}

bool cudnn_attention_backward(memory::Queue& q, FlashCall const& call,
                              AttentionGradients const& gradients, AttentionSaved const& saved,
                              CudnnMasks const& masks) {
  Pointers pointers{{query_id, at(call.in.query.base)}, {key_id, at(call.in.key.base)},
                    {value_id, at(call.in.value.base)}, {out_id, at(saved.out.data())},
                    {dout_id, at(saved.dout.data())},   {lse_id, at(saved.lse.data())},
                    {dquery_id, gradients.query.base},  {dkey_id, gradients.key.base},
                    {dvalue_id, gradients.value.base}};
  add_masks(pointers, call, masks);
  return CudnnAttention::of_process().run(q, key_of(call, true, gradients), std::move(pointers),
                                          [&] { return backward_graph(call, gradients); });
}

bool cudnn_has_plans(FlashCall const& call) {
  auto const heads = [](ConstHeadsView const& x) {
    return HeadsView{const_cast<void*>(x.base), x.row_stride, x.head_stride};
  };
  AttentionGradients const gradients{heads(call.in.query), heads(call.in.key),
                                     heads(call.in.value)};
  auto& attention = CudnnAttention::of_process();
  return attention.has_plan(key_of(call, false, {}), [&] { return forward_graph(call); }) &&
         attention.has_plan(key_of(call, true, gradients),
                            [&] { return backward_graph(call, gradients); });
}

std::int64_t* cudnn_mask_key(void* stream) {
  return CudnnAttention::of_process().mask_key_of(stream);
}

void* cudnn_document_mask(void* stream, std::int64_t bytes) {
  return CudnnAttention::of_process().document_mask_of(stream, bytes);
}

std::string cudnn_description() {
  return concat("cuDNN ", CUDNN_MAJOR, ".", CUDNN_MINOR, ".", CUDNN_PATCHLEVEL);
}

}  // namespace tessera::kernels::detail
#else

namespace tessera::kernels::detail {
bool cudnn_attention(memory::Queue&, FlashCall const&, void*, float*, CudnnMasks const&) {
  return false;
}
bool cudnn_attention_backward(memory::Queue&, FlashCall const&, AttentionGradients const&,
                              AttentionSaved const&, CudnnMasks const&) {
  return false;
}
bool cudnn_has_plans(FlashCall const&) { return false; }
std::int64_t* cudnn_mask_key(void*) { return nullptr; }
void* cudnn_document_mask(void*, std::int64_t) { return nullptr; }
std::string cudnn_description() { return ""; }
}  // namespace tessera::kernels::detail
#endif

namespace tessera::kernels::detail {
namespace {

/// Parts of a batch that need more are computed separately.
constexpr std::int64_t largest_part_bytes = std::int64_t{1} << 30;

/// What about documents in packed rows cuDNN does not compute; empty when it computes them.
std::string why_not_documents(AttentionConfig const& config, CudnnDevice const& device) {
  std::string const documents = "documents in packed rows (reset_attention_mask)";
  if (config.drop.p > 0.0f)
    return concat(documents, " with a dropout of ", config.drop.p,
                  " on attention weights (attn_pdrop)");
  if (device.deterministic && device.major == 10)
    return documents +
           " in a backward pass that repeats its bits on data center Blackwell; it "
           "does with --deterministic false";
  AttentionShape row = config.shape;
  row.batch = 1;
  if (document_mask_bytes(row) > largest_part_bytes)
    return concat(documents, " of ", row.sequence,
                  " positions, whose mask would need more than 1 GiB");
  return "";
}

/// What has views at other places than multiples of 16 bytes; empty when none has.
std::string misaligned(std::string const& operands,
                       std::initializer_list<ConstHeadsView> const& views) {
  for (auto const& x : views)
    if (x.row_stride % 8 != 0 || x.head_stride % 8 != 0 ||
        reinterpret_cast<std::uintptr_t>(x.base) % 16 != 0)
      return operands + " that are not aligned to 16 bytes";
  return "";
}

}  // namespace

/// Conditions of the attention page: fp16 or bf16, heads of a multiple of 8 up to 128 elements in
/// both directions on every architecture from Ampere on, up to 256 on Hopper, operands at multiples
/// of 16 bytes.
std::string why_not_cudnn(AttentionConfig const& config, ConstTensorView documents,
                          CudnnDevice const& device) {
  auto const& s = config.shape;
  int const widest = device.major == 9 ? 256 : 128;
  if (config.dtype != Dtype::fp16 && config.dtype != Dtype::bf16)
    return concat(name_of(config.dtype), "; it takes fp16 and bf16");
  if (s.sequence < 2) return "sequences of one token";
  if (s.head_dim % 8 != 0 || s.head_dim > widest)
    return concat("heads of ", s.head_dim, " elements; it takes multiples of 8 up to ", widest);
  if (config.drop.p >= 1.0f)
    return concat("a dropout of ", config.drop.p, " on attention weights (attn_pdrop)");
  if (s.mask.window > 0 && s.mask.window < s.sequence)
    return concat("a sliding window of ", s.mask.window, " positions");
  if (s.mask.soft_cap > 0.0f) return concat("a soft cap of ", s.mask.soft_cap, " on scores");
  return documents.empty() ? "" : why_not_documents(config, device);
}

std::string why_not_cudnn(FlashCall const& call, CudnnDevice const& device) {
  if (auto problem = why_not_cudnn(call.config, call.in.documents, device); !problem.empty())
    return problem;
  if (auto const problem = misaligned("operands", {call.in.query, call.in.key, call.in.value});
      !problem.empty())
    return problem;
  if (cudnn_description().empty())
    return "anything here: this build has no frontend of it (TESSERA_CUDNN_FRONTEND)";
  return "";
}

std::string why_not_cudnn(AttentionGradients const& gradients) {
  return misaligned("gradients", {gradients.query, gradients.key, gradients.value});
}

/// From plans of cuDNN 9.19 and 9.26 (tests/gpu/cudnn_plans.test.cpp): one fp32 number per row and
/// head; the deterministic algorithm keeps dP in 16 bits, except on data center Blackwell, the
/// other one sums dq in fp32 (twice before Hopper); gradients of shared keys and values of each
/// query head are summed at the end. GeForce and workstation Blackwell (12.0) take Ampere's
/// kernels.
std::int64_t cudnn_backward_workspace(AttentionConfig const& config, CudnnDevice const& device) {
  auto const& s = config.shape;
  bool const as_ampere = device.major < 9 || device.major >= 12;
  std::int64_t const heads = s.batch * s.heads, rows = heads * s.sequence,
                     fp32_rows = 4 * rows * s.head_dim,
                     shared = s.kv_heads < s.heads ? fp32_rows : 0;
  bool const keeps_dp = device.deterministic && (as_ampere || device.major == 9);
  if (keeps_dp)
    return 2 * heads * round_up(s.sequence, 64) * round_up(s.sequence, 128) + 4 * rows + shared;
  return 4 * rows + fp32_rows * (as_ampere ? 2 : 1) + shared;
}

std::int64_t cudnn_backward_bytes(AttentionConfig const& config, bool documents,
                                  CudnnDevice const& device) {
  return cudnn_backward_workspace(config, device) +
         (documents ? document_mask_bytes(config.shape) : 0);
}

AttentionConfig cudnn_backward_part(AttentionConfig config, bool documents,
                                    CudnnDevice const& device) {
  std::int64_t& batch = config.shape.batch;
  std::int64_t const all = cudnn_backward_bytes(config, documents, device);
  if (config.drop.p > 0.0f || all <= largest_part_bytes) return config;
  std::int64_t const rows = std::max<std::int64_t>(1, largest_part_bytes / ceil_divide(all, batch));
  batch = ceil_divide(batch, ceil_divide(batch, rows));
  return config;
}

}  // namespace tessera::kernels::detail

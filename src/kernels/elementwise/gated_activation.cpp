#include "tessera/kernels/elementwise/activation.hpp"

#include "elementwise/activation_rules.hpp"
#include "elementwise/gated.hpp"
#include "launch/launch.hpp"

namespace tessera::kernels {
namespace {

using detail::with_activation;
using detail::with_type;

template <class T>
detail::MatrixRows<T> rows_of(RowsView const& view) {
  return {static_cast<T*>(view.base), view.row_stride};
}
template <class T>
detail::MatrixRows<T const> rows_of(ConstRowsView const& view) {
  return {static_cast<T const*>(view.base), view.row_stride};
}

/// Rows on the host, packs of 16 bytes or single elements on a stream.
template <class T, class Rule, class... Rows>
void launch_gated(Queue& q, char const* name, GatedShape const& shape, Rule const& rule,
                  Rows const&... rows) {
  memory::note_bytes(
      q, name, sizeof...(rows) * sizeof(T) * static_cast<std::size_t>(shape.rows * shape.width));
  if (!detail::on_device(q))
    return detail::launch_on_host(q, name, shape.rows, detail::CallWithRow<Rule>{rule});
  constexpr int pack = detail::pack_of<T>;
  bool const in_packs =
      detail::in_packs<pack>(shape.width, rows.base...) && ((rows.row_stride % pack == 0) && ...);
  if (in_packs)
    detail::parallel_for(q, name, shape.rows * (shape.width / pack),
                         detail::CallWithPack<Rule, pack>{rule, shape.width / pack});
  else
    detail::parallel_for(q, name, shape.rows * shape.width,
                         detail::CallWithPack<Rule, 1>{rule, shape.width});
}

}  // namespace

void gated_activate(Queue& q, Activation f, GatedShape const& shape, RowsView const& out,
                    GatedInput const& in) {
  with_type(shape.dtype, "gated_activate", [&](auto tag) {
    with_activation(f, [&](auto function) {
      using T = typename decltype(tag)::type;
      detail::Gated<decltype(function), T> const rule{rows_of<T>(out), rows_of<T>(in.gate),
                                                      rows_of<T>(in.up), shape.width};
      launch_gated<T>(q, "tessera::kernels::gated_activate", shape, rule, rule.out, rule.gate,
                      rule.up);
    });
  });
}

void gated_activate_backward(Queue& q, Activation f, GatedShape const& shape,
                             GatedGradients const& to, ConstRowsView const& dout,
                             GatedInput const& in) {
  with_type(shape.dtype, "gated_activate_backward", [&](auto tag) {
    with_activation(f, [&](auto function) {
      using T = typename decltype(tag)::type;
      detail::GatedBackward<decltype(function), T> const rule{
          rows_of<T>(to.gate), rows_of<T>(to.up), rows_of<T>(dout),
          rows_of<T>(in.gate), rows_of<T>(in.up), shape.width};
      launch_gated<T>(q, "tessera::kernels::gated_activate_backward", shape, rule, rule.dgate,
                      rule.dup, rule.dout, rule.gate, rule.up);
    });
  });
}

}  // namespace tessera::kernels

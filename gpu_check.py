import torch, time
from trainwright.train.models import moe
torch.manual_seed(0)
dev="cuda"
def check(T,E,K,N,zero):
    p=torch.rand(E); p[:zero]=0
    e=torch.multinomial(p,T,replacement=True).sort().values
    counts=torch.bincount(e,minlength=E).to(dev)
    ends=counts.cumsum(0,dtype=torch.int32)
    x=torch.randn(T,K,device=dev,dtype=torch.bfloat16,requires_grad=True); w=(torch.randn(E,N,K,device=dev)*K**-.5).bfloat16().requires_grad_()
    y=moe.grouped_product(x,w,ends); g=torch.randn_like(y); y.backward(g)
    x2=x.detach().double().requires_grad_(); w2=w.detach().double().requires_grad_()
    y2=moe.grouped_product(x2,w2,ends); y2.backward(g.double())
    r=lambda a,b: float((a.double()-b).norm()/b.norm())
    print(T,E,K,N,zero,"y",r(y,y2),"dx",r(x.grad,x2.grad),"dw",r(w.grad,w2.grad), "nan", bool(w.grad.isnan().any()), flush=True)
check(1000,16,256,512,3); check(4096,128,2048,1536,0); check(777,8,64,96,5)
def bench(f,n=10):
    f(); torch.cuda.synchronize(); a=torch.cuda.Event(enable_timing=True); b=torch.cuda.Event(enable_timing=True); a.record()
    for _ in range(n): f()
    b.record(); torch.cuda.synchronize(); return a.elapsed_time(b)/n
T,E,H,F_=262144,128,2048,768
counts=torch.bincount(torch.randint(0,E,(T,),device=dev),minlength=E); ends=counts.cumsum(0,dtype=torch.int32)
x=torch.randn(T,H,device=dev,dtype=torch.bfloat16); gu=torch.randn(E,2*F_,H,device=dev,dtype=torch.bfloat16); dn=torch.randn(E,H,F_,device=dev,dtype=torch.bfloat16)
h=torch.randn(T,F_,device=dev,dtype=torch.bfloat16); gh=torch.randn(T,2*F_,device=dev,dtype=torch.bfloat16)
fl=2*T*H*F_
g=torch._grouped_mm
for name,f,k in (("gate_up fwd",lambda: g(x,gu.transpose(1,2),offs=ends),2),("down fwd",lambda: g(h,dn.transpose(1,2),offs=ends),1),("gate_up dx",lambda: g(gh,gu,offs=ends),2),("down dx",lambda: g(x,dn,offs=ends),1),("gate_up dw",lambda: g(gh.t(),x,offs=ends),2),("down dw",lambda: g(x.t(),h,offs=ends),1)):
    ms=bench(f); print(name, f"{ms:.2f} ms {k*fl/ms/1e9:.0f} TFLOP/s",flush=True)
ms=bench(lambda: torch.mm(x,gu[0].t())); print("dense mm", f"{ms:.2f} ms {2*fl/ms/1e9:.0f}")

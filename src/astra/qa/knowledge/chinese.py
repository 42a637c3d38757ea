"""Chinese for generated knowledge: made-up names, category words, and phrases of relations.

Columns, relations and tables keep their English names, which become tools and parameters.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from astra.qa.knowledge.schema import Relation, RowChoice
from astra.records.base import content_id
from astra.text.names import Pool, pool_of

_SURNAMES = "赵钱孙李周吴郑王冯陈蒋沈韩杨朱秦许何吕张孔曹严华金魏陶姜谢邹柏章苏潘葛范彭鲁韦马"
_GIVEN = (
    "晓明 思远 雨桐 子涵 建国 丽华 志强 文博 诗雅 浩然 静怡 天佑 梦洁 俊杰 雪梅 嘉宁 国栋 佳音 "
    "明轩 若曦 永康 春燕 立群 可欣 泽宇 婉清 景行 书瑶 凯文 玉兰 海峰 秀英 德华 美玲 一凡 语嫣 "
    "少华 淑珍 振国 巧云 宏伟 爱莲 启明 素芬 光耀 慧敏 世杰 冬梅 学文 桂芳 子墨 沐阳"
).split()
_QUALIFIER = (
    "翠湖 金桥 银杏 望江 听雨 紫藤 碧海 青山 云栖 锦绣 朝阳 暮雪 松涛 竹韵 梅园 兰亭 枫林 荷风 "
    "星河 月影 长安 临江 南湾 北岭 东篱 西溪 秋水 春晖 清泉 白鹭 红叶 黄鹤 丹霞 白云 龙泉 凤凰 "
    "麒麟 玉泉 石榴 芙蓉 海棠 牡丹 茉莉 桂花 栖霞 观澜 临风 揽月 摘星 浣花 采薇 流芳 鸣泉 落雁 "
    "沉香 琥珀 珊瑚 玛瑙 翡翠 琉璃 青瓷 墨竹 寒梅 幽兰"
).split()
_NOUN = (
    "苑 阁 庄 轩 居 坊 楼 台 港 谷 园 馆 堂 门 桥 湾 洲 峰 渡 塔 城 里 街 巷 岛 寨 亭 榭 府 墅"
).split()
_NAMES = {"person": (tuple(_SURNAMES), _GIVEN), "thing": (_QUALIFIER, _NOUN)}


def _pairs(items: Sequence[str]) -> dict[str, str]:
    """``left=right`` items as a mapping."""
    return {left: right for left, _, right in (item.partition("=") for item in items)}


WORDS: Mapping[str, str] = _pairs(
    (
        "listing=房源 agent=经纪人 district=城区 office=门店 manager=经理 mayor=区长 "
        "asking_price=要价 rooms=房间数 listed_date=挂牌日期 fee=佣金 tax=税率 age=年龄 "
        "salary=薪水 product=商品 brand=品牌 seller=卖家 warehouse=仓库 founder=创始人 "
        "supervisor=主管 price=价格 stock=库存 rating=评分 joined_date=加入日期 wage=时薪 "
        "patient=病人 doctor=医生 clinic=诊所 ward=病区 director=院长 nurse=护士 weight=体重 "
        "admission_date=入院日期 experience=资历 specialty=专科 floor=楼层 budget=预算 shift=班次 "
        "parcel=包裹 driver=司机 truck=卡车 garage=车库 owner=业主 depot=货站 load=载重 "
        "shipping_date=发货日期 license=驾照 mileage=里程 bays=车位数 docks=泊位数 room=客房 "
        "guest=住客 hotel=酒店 beds=床位数 arrival_date=到店日期 height=高度 bonus=奖金 book=图书 "
        "member=读者 branch=分馆 librarian=馆长 pages=页数 shelf=书架 fines=罚款 country=国家 "
        "city=城市 airport=机场 capital=首都 currency=货币 continent=大洲 code=代码 "
        "population=人口 elevation=海拔 element=元素 symbol=符号 atomic_number=原子序数 "
        "period=周期 series=系列 "
        "colors=颜色数 zone=分区 chain=集团"
    ).split()
)
"""Column or entity type -> its Chinese word."""
CATEGORIES: Mapping[str, str] = _pairs(
    (
        "crowns=克朗 dinars=第纳尔 pesos=比索 shillings=先令 surgery=外科 dental=牙科 "
        "cardiology=心内科 radiology=放射科 local=本地 regional=区域 national=全国 feet=英尺 "
        "yards=码 inches=英寸 pounds=磅 ounces=盎司 stones=英石"
    ).split()
)
"""Category cell -> its Chinese word."""
PHRASES: Mapping[str, tuple[str, str]] = {
    "amount.convert_amount": ("{x}换算成{y}的金额", "{x}换算成另一种货币的金额"),
    "amount.multiply_amount": ("{x}乘以{y}的结果", "{x}乘以若干倍的结果"),
    "length.convert_length": ("{x}换算成{y}的长度", "{x}换算成另一种单位的长度"),
    "weight.convert_weight": ("{x}换算成{y}的重量", "{x}换算成另一种单位的重量"),
    "date.add_days": ("{x}之后{y}天的日期", "{x}之后若干天的日期"),
    "date.days_between": ("{x}之间相隔的天数", ""),
    "date.find_weekday": ("{x}是星期几", ""),
    "district.listings": ("{x}房间数为{y}的房源数量", ""),
    "agent.total_asking_price": ("{x}的房源的要价总额", ""),
    "agent.cheapest_listing": ("{x}最便宜的房源", ""),
    "office.agents": ("{x}的所有经纪人", ""),
    "office.listings": ("{x}的经纪人的房源数量", ""),
    "office.total_asking_price": ("{x}的经纪人的房源的要价总额", ""),
    "agent.listings_above": ("{x}要价高于{y}的房源", ""),
    "agent.listings_by_price": ("{x}的房源按要价从低到高的排列", ""),
    "listing.details": ("{x}的详情（asking_price 和 rooms）", ""),
    "listing.check_agent": ("{y}是{x}的经纪人", ""),
    "brand.products": ("{x}的商品数量", ""),
    "brand.highest_price": ("{x}的商品的最高价格", ""),
    "seller.cheapest_product": ("{x}最便宜的商品", ""),
    "warehouse.average_rating": ("{x}的卖家的平均评分", ""),
    "warehouse.products": ("{x}的卖家的所有商品", ""),
    "seller.products_above": ("{x}价格高于{y}的商品", ""),
    "seller.products_by_price": ("{x}的商品按价格从低到高的排列", ""),
    "product.details": ("{x}的详情（price 和 stock）", ""),
    "product.check_seller": ("{y}是{x}的卖家", ""),
    "clinic.doctors": ("{x}专科为{y}的医生数量", ""),
    "doctor.patients": ("{x}的所有病人", ""),
    "doctor.heaviest_patient": ("{x}最重的病人", ""),
    "clinic.total_experience": ("{x}的医生的资历总和", ""),
    "clinic.patients": ("{x}的医生的病人数量", ""),
    "doctor.patients_above": ("{x}体重高于{y}的病人", ""),
    "doctor.patients_by_weight": ("{x}的病人按体重从低到高的排列", ""),
    "patient.check_doctor": ("{y}是{x}的医生", ""),
    "depot.parcels": ("{x}的包裹数量", ""),
    "driver.total_load": ("{x}的包裹的总载重", ""),
    "depot.heaviest_parcel": ("{x}最重的包裹", ""),
    "truck.parcels": ("{x}的司机的包裹数量", ""),
    "driver.parcels_above": ("{x}载重高于{y}的包裹", ""),
    "driver.parcels_by_load": ("{x}的包裹按载重从低到高的排列", ""),
    "guest.rooms": ("{x}的客房数量", ""),
    "hotel.cheapest_room": ("{x}最便宜的客房", ""),
    "hotel.total_price": ("{x}的客房的价格总额", ""),
    "manager.rooms": ("{x}的酒店的客房数量", ""),
    "hotel.rooms_above": ("{x}价格高于{y}的客房", ""),
    "hotel.rooms_by_price": ("{x}的客房按价格从低到高的排列", ""),
    "room.details": ("{x}的详情（price 和 beds）", ""),
    "room.check_hotel": ("{y}是{x}的酒店", ""),
    "room.reserve_room": ("为{y}预订{x}", "预订{x}"),
    "room.cancel_room": ("取消{x}的预订", ""),
    "room.set_price": ("把{x}的价格改为{y}", "更改{x}的价格"),
    "branch.longest_book": ("{x}最厚的图书", ""),
    "branch.total_pages": ("{x}的图书的总页数", ""),
    "librarian.books": ("{x}的分馆的图书数量", ""),
    "branch.books_above": ("{x}页数高于{y}的图书", ""),
    "branch.books_by_pages": ("{x}的图书按页数从低到高的排列", ""),
    "book.details": ("{x}的详情（pages 和 shelf）", ""),
    "member.books": ("{x}的图书数量", ""),
    "book.borrow_book": ("为{y}借出{x}", "借出{x}"),
    "book.return_book": ("归还{x}", ""),
    "book.move_book": ("把{x}移到{y}号书架", "把{x}移到另一个书架"),
    "country.largest_city": ("{x}最大的城市", ""),
    "city.population": ("{x}以千计的人口", ""),
}
"""Relation -> its Chinese phrase, and the phrase without its literal where one is needed."""


class NoWord(KeyError):
    """A relation has no Chinese phrase: PHRASES and WORDS know neither it nor its column."""


def translated(relation: Relation) -> dict[str, Any]:
    """The Chinese of a relation's fields ``phrase``, ``vague`` and ``choice``. Raises NoWord."""
    phrase, vague = PHRASES.get(relation.name, ("", ""))
    if not phrase and (relation.choice or relation.op in ("count", "argmin")):
        return _choosing(relation)
    if not phrase:
        column = relation.name.partition(".")[2]
        if relation.op != "lookup" or column not in WORDS:
            raise NoWord(relation.name)
        phrase = f"{{x}}的{WORDS[column]}"
    return {"phrase": phrase, "vague": vague if relation.vague else ""}


def _choosing(relation: Relation) -> dict[str, Any]:
    """The Chinese of what choices.py makes, built from the words of its columns. Raises NoWord."""
    try:
        return {"phrase": _phrase(relation), "choice": relation.choice and _choice(relation)}
    except KeyError as error:
        raise NoWord(f"{relation.name}: {error}") from None


def _phrase(relation: Relation) -> str:
    if relation.op == "record":
        return "{x}的基本信息"
    thing = WORDS[relation.table.removesuffix("s")]
    only = _only(relation.extra)
    if relation.op == "argmin":
        measure = WORDS[relation.select.partition(":")[2]]
        return f"{{x}}{only}{measure}最低的{thing}"
    end = "数量" if relation.op == "count" else ""
    return f"{{x}}{only}{thing}{end}" if only else f"{{x}}的所有{thing}{end}"


def _only(column: str) -> str:
    return f"{WORDS[column]}为{{y}}的" if column else ""


def _choice(relation: Relation) -> RowChoice:
    choice = relation.choice
    assert choice is not None
    if relation.op == "record":
        return replace(choice, phrase=f"{{x}}的{WORDS[choice.field]}")
    thing = WORDS[relation.table.removesuffix("s")]
    measure, extreme = choice.lowest or choice.highest, "最低" if choice.lowest else "最高"
    only = _only(choice.where or relation.extra)
    ranked = f"{WORDS[measure]}{extreme}的" if measure else ""
    field = "" if WORDS[choice.field] == thing else f"的{WORDS[choice.field]}"
    return replace(choice, phrase=f"{{x}}{only}{ranked}{thing}{field}")


@cache
def _members(who: str, pool: Pool) -> tuple[str, ...]:
    first, second = _NAMES[who]
    return tuple(a + b for a in first for b in second if pool_of(a + b) is pool)


def draw_names(who: str, pool: Pool, count: int, rng: random.Random) -> list[str]:
    """``count`` distinct names of a pool (``person`` or ``thing``), fewer if it is smaller."""
    members = _members(who, pool)
    return rng.sample(members, min(count, len(members)))


def name_stock(who: str, pool: Pool, seed: int, count: int) -> list[str]:
    """The Chinese names of one kind that a split uses."""
    rng = random.Random(int(content_id(["stock", "zh", who, pool, seed]), 16))
    return draw_names(who, pool, count, rng)
